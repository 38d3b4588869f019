/**
 * The context of one call, as handlers see it on every transport. Headers and the abort signal are made when somebody
 * asks for them: most unary handlers never do, and both cost more than the rest of a call.
 */
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { createContextValues } from "@connectrpc/connect";
import type { ContextValues, HandlerContext } from "@connectrpc/connect";
import { SvcError } from "../errors.ts";
import { deadlineExceeded, errorOfAbort } from "./error-mapping.ts";
import { requestIdKey, userContextKey } from "./user-context.ts";
import type { UserContext } from "./user-context.ts";

/** `setTimeout` turns anything longer into one millisecond. */
const longestTimerMs = 2 ** 31 - 1;

/** What an ended call's signal aborts with; shared, as making an error for each call is the dearest part of ending it. */
const callIsOver = new SvcError("canceled", "canceled", "the call is over");

export interface CallContextInit {
  readonly method: DescMethod;
  readonly user: UserContext;
  readonly requestId: string;
  readonly protocolName: string;
  /** The client's own abort; on Connect its deadline and the shutdown too. */
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
  /** Connect's own context, where there is one. */
  readonly connect?: HandlerContext | undefined;
}

export class CallContext implements HandlerContext {
  readonly method: DescMethod;
  readonly service: DescService;
  readonly protocolName: string;
  readonly requestMethod: string;
  readonly url: string;
  readonly values: ContextValues;
  readonly user: UserContext;
  readonly requestId: string;

  readonly #connect: HandlerContext | undefined;
  readonly #sources: readonly AbortSignal[];
  readonly #onSourceAbort = (event: Event): void => this.abort((event.target as AbortSignal).reason);
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #deadline: number | undefined;
  #controller: AbortController | undefined;
  #reason: unknown;
  #isAborted = false;
  #onAbort: ((error: SvcError) => void) | undefined;
  #headers: { request: Headers; response: Headers; trailer: Headers } | undefined;

  constructor(init: CallContextInit) {
    this.method = init.method;
    this.service = init.method.parent;
    this.protocolName = init.protocolName;
    this.requestMethod = init.connect?.requestMethod ?? "POST";
    this.url = init.connect?.url ?? "";
    this.user = init.user;
    this.requestId = init.requestId;
    this.values =
      init.connect?.values ??
      createContextValues().set(userContextKey, init.user).set(requestIdKey, init.requestId);
    this.#connect = init.connect;
    this.#sources = [init.signal, init.user.ended].filter((signal) => signal !== undefined);
    for (const source of this.#sources) {
      if (source.aborted) this.abort(source.reason);
      else source.addEventListener("abort", this.#onSourceAbort);
    }
    if (init.timeoutMs !== undefined) {
      this.#deadline = Date.now() + init.timeoutMs;
      const delayMs = Math.min(Math.max(init.timeoutMs, 0), longestTimerMs);
      this.#timer = setTimeout(() => this.abort(deadlineExceeded()), delayMs);
    }
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#isAborted) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  get isAborted(): boolean {
    return this.#isAborted;
  }

  timeoutMs(): number | undefined {
    return this.#deadline === undefined ? this.#connect?.timeoutMs() : this.#deadline - Date.now();
  }

  get requestHeader(): Headers {
    return this.#connect?.requestHeader ?? this.#ownHeaders().request;
  }

  get responseHeader(): Headers {
    return this.#connect?.responseHeader ?? this.#ownHeaders().response;
  }

  get responseTrailer(): Headers {
    return this.#connect?.responseTrailer ?? this.#ownHeaders().trailer;
  }

  /** Aborts the signal and whatever {@link race} waits for. Only the first reason counts. */
  abort(reason: unknown): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#reason = reason;
    this.#controller?.abort(reason);
    this.#onAbort?.(errorOfAbort(reason));
    this.#release();
  }

  /** The call has its answer: work that still holds its signal stops. */
  end(): void {
    this.abort(callIsOver);
  }

  /** `work`, or the error of the abort when that comes first: a handler that ignores its signal holds nobody up. */
  race<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#onAbort = reject;
      if (this.#isAborted) reject(errorOfAbort(this.#reason));
      work.then(resolve, reject);
    });
  }

  #ownHeaders(): { request: Headers; response: Headers; trailer: Headers } {
    this.#headers ??= { request: new Headers(), response: new Headers(), trailer: new Headers() };
    return this.#headers;
  }

  #release(): void {
    clearTimeout(this.#timer);
    this.#onAbort = undefined;
    for (const source of this.#sources) source.removeEventListener("abort", this.#onSourceAbort);
  }
}
