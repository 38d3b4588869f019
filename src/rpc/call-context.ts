/**
 * The context of one call, as handlers see it on every transport. Headers and the abort signal are made when somebody
 * asks for them: most unary handlers never do, and both cost more than the rest of a call.
 */
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { createContextValues, type ContextValues, type HandlerContext } from "@connectrpc/connect";
import { SvcError } from "../errors.ts";
import { AbortSource } from "../lib/abort-source.ts";
import { deadlineExceeded, errorOfAbort } from "./error-mapping.ts";
import { requestIdKey, userContextKey, type UserContext } from "./user-context.ts";

/** `setTimeout` turns anything longer into one millisecond. */
const longestTimerMs = 2 ** 31 - 1;

/** What an ended call's signal aborts with; shared, as making an error for each call is the dearest part of ending it. */
const callIsOver = new SvcError("canceled", "the call is over");

const noSignals: readonly AbortSignal[] = [];

/** What a transport says about a call. */
export interface Call {
  readonly user: UserContext;
  /** Shown in logs, audit records and internal errors. */
  readonly requestId: string;
  /** Such as `rest`, `in-memory` or `grpc`. */
  readonly protocolName: string;
  /** Aborts when the client goes away. The pipeline adds shutdown, deadline and the end of the token. */
  readonly signal?: AbortSignal | undefined;
  /** Likewise, for transports that make no signal before somebody asks for one. Has no other follower. */
  readonly source?: AbortSource | undefined;
  /** What the request asked for, where it came as a procedure's; absent elsewhere. */
  readonly url?: string;
  /** Milliseconds that the client gives the call. */
  readonly timeoutMs?: number | undefined;
  /** Opens the request's headers, when a handler wants to read them. */
  openRequestHeader?(): Headers;
  /** Opens the answer's headers, when a handler wants to set some. */
  openResponseHeader?(): Headers;
  /** Likewise what follows the answer, where the protocol has such a thing. */
  openResponseTrailer?(): Headers;
}

export class CallContext extends AbortSource implements HandlerContext {
  readonly method: DescMethod;
  readonly service: DescService;
  readonly protocolName: string;
  readonly requestMethod: string;
  readonly url: string;
  readonly values: ContextValues;
  readonly user: UserContext;
  readonly requestId: string;

  readonly #connect: HandlerContext | undefined;
  readonly #call: Call;
  readonly #sources: readonly AbortSignal[];
  readonly #onSourceAbort = (event: Event): void => this.abort((event.target as AbortSignal).reason);
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #deadline: number | undefined;
  #onAbort: ((error: SvcError) => void) | undefined;
  #requestHeader: Headers | undefined;
  #responseHeader: Headers | undefined;
  #responseTrailer: Headers | undefined;

  /** @param connect Connect's own context, where there is one; `call.signal` is then its signal, deadline included */
  constructor(method: DescMethod, call: Call, connect?: HandlerContext) {
    super();
    const { user, requestId } = call;
    this.method = method;
    this.service = method.parent;
    this.protocolName = call.protocolName;
    this.requestMethod = connect?.requestMethod ?? "POST";
    this.url = connect?.url ?? call.url ?? "";
    this.user = user;
    this.requestId = requestId;
    this.values =
      connect?.values ?? createContextValues().set(userContextKey, user).set(requestIdKey, requestId);
    this.#connect = connect;
    this.#call = call;
    this.#sources =
      call.signal === undefined && user.ended === undefined
        ? noSignals
        : [call.signal, user.ended].filter((signal) => signal !== undefined);
    for (const source of this.#sources) {
      if (source.aborted) this.abort(source.reason);
      else source.addEventListener("abort", this.#onSourceAbort);
    }
    call.source?.follow(this);
    if (call.timeoutMs !== undefined) {
      this.#deadline = Date.now() + call.timeoutMs;
      const delayMs = Math.min(Math.max(call.timeoutMs, 0), longestTimerMs);
      this.#timer = setTimeout(() => this.abort(deadlineExceeded()), delayMs);
    }
  }

  timeoutMs(): number | undefined {
    return this.#deadline === undefined ? this.#connect?.timeoutMs() : this.#deadline - Date.now();
  }

  get requestHeader(): Headers {
    return (
      this.#connect?.requestHeader ??
      (this.#requestHeader ??= this.#call.openRequestHeader?.() ?? new Headers())
    );
  }

  get responseHeader(): Headers {
    return (
      this.#connect?.responseHeader ??
      (this.#responseHeader ??= this.#call.openResponseHeader?.() ?? new Headers())
    );
  }

  get responseTrailer(): Headers {
    return (
      this.#connect?.responseTrailer ??
      (this.#responseTrailer ??= this.#call.openResponseTrailer?.() ?? new Headers())
    );
  }

  /** Aborts the signal and whatever {@link race} waits for. Only the first reason counts. */
  override abort(reason: unknown): void {
    if (this.isAborted) return;
    super.abort(reason);
    this.#onAbort?.(errorOfAbort(reason));
    this.#release();
  }

  /** @throws SvcError that the call was aborted with, if it was */
  throwIfAborted(): void {
    if (this.isAborted) throw errorOfAbort(this.reason);
  }

  /** The call has its answer: work that still holds its signal stops. */
  end(): void {
    this.#onAbort = undefined;
    this.abort(callIsOver);
  }

  /** Calls `listener` when the call is aborted before its end, at once when it has been. It replaces the one before. */
  onAbort(listener: (error: SvcError) => void): void {
    this.#onAbort = listener;
    if (this.isAborted) listener(errorOfAbort(this.reason));
  }

  /** `work`, or the error of the abort when that comes first: a handler that ignores its signal holds nobody up. */
  race<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.onAbort(reject);
      work.then(resolve, reject);
    });
  }

  #release(): void {
    clearTimeout(this.#timer);
    this.#onAbort = undefined;
    for (const source of this.#sources) source.removeEventListener("abort", this.#onSourceAbort);
  }
}
