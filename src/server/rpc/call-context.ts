/**
 * The context of one call, the same on every transport. Headers and the abort signal are created at first
 * use: most unary handlers need neither, and both cost more than the rest of a call.
 */
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { createContextValues, type ContextValues, type HandlerContext } from "@connectrpc/connect";
import { SvcError } from "../../errors.ts";
import { AbortSource } from "../../lib/abort.ts";
import { deadlineExceeded, errorOfAbort } from "./error-mapping.ts";
import { requestIdKey, userContextKey, type UserContext } from "./user-context.ts";

/** `setTimeout` treats longer delays as one millisecond. */
const longestTimerMs = 2 ** 31 - 1;

/** The abort reason of ended calls. Shared, because creating an error per call is expensive. */
const callIsOver = new SvcError("canceled", "the call has ended");

const noSignals: readonly AbortSignal[] = [];

/** Properties of a call, set by its transport. */
export interface Call {
  readonly user: UserContext;
  /** The method that the gate has admitted the caller to; other methods are checked when the call starts. */
  readonly admittedTo?: DescMethod | undefined;
  /** Shown in logs, audit records and internal errors. */
  readonly requestId: string;
  /** Such as `rest`, `in-memory` or `grpc`. */
  readonly protocolName: string;
  /** Aborts when the client disconnects. The pipeline adds shutdown, deadline and token expiry. */
  readonly signal?: AbortSignal | undefined;
  /** Like `signal`, for transports that create signals on demand. Has no other follower. */
  readonly source?: AbortSource | undefined;
  /** The URL of a procedure request; absent for other requests. */
  readonly url?: string;
  /** The client's timeout in milliseconds. */
  readonly timeoutMs?: number | undefined;
  /** Creates the request's headers at first use. */
  openRequestHeader?(): Headers;
  /** Creates the response headers at first use. */
  openResponseHeader?(): Headers;
  /** Creates the response trailers at first use, if the protocol has trailers. */
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

  /** @param connect Connect's context, if any; `call.signal` is then its signal, including the deadline */
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

  /** @throws SvcError the abort reason, if the call was aborted */
  throwIfAborted(): void {
    if (this.isAborted) throw errorOfAbort(this.reason);
  }

  /** Ends the call after its response, and aborts work that still uses its signal. */
  end(): void {
    this.#onAbort = undefined;
    this.abort(callIsOver);
  }

  /**
   * Calls `listener` when the call is aborted before its end, at once if it already was. Replaces an earlier
   * listener.
   */
  onAbort(listener: (error: SvcError) => void): void {
    this.#onAbort = listener;
    if (this.isAborted) listener(errorOfAbort(this.reason));
  }

  /** Resolves like `work`, but rejects at once on an abort, even if the handler ignores its signal. */
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
