/**
 * Works around Connect's adapters for Node and Express. They print a stack trace for each client that
 * disconnects during a write, and never respond if a response cannot be sent. The wrapped handlers send an
 * error response, then report a broken connection to the adapter, which both adapters ignore silently.
 */
import { Code, ConnectError, createContextKey, type ConnectRouter } from "@connectrpc/connect";
import type { UniversalHandler, UniversalServerResponse } from "@connectrpc/connect/protocol";
import { clientGone } from "../../../errors.ts";
import { escapeLess } from "../grpc-status.ts";
import type { HttpResponse } from "../http-request.ts";

/** Key of the HTTP response of a call. */
export const responseKey = createContextKey<HttpResponse | undefined>(undefined, {
  description: "svc response",
});

/** Responds to failures outside of a call. */
export type Failed = (response: HttpResponse, error: unknown) => void;

/** Wraps the handlers of `routes`, so that adapters have no errors to print. */
export function guardRoutes(
  routes: (router: ConnectRouter) => void,
  failed: Failed,
): (router: ConnectRouter) => void {
  return (router) => {
    routes(router);
    const { handlers } = router;
    handlers.splice(0, handlers.length, ...handlers.map((handler) => guard(handler, failed)));
  };
}

function guard(handler: UniversalHandler, failed: Failed): UniversalHandler {
  const guarded = async (...[request]: Parameters<UniversalHandler>): Promise<UniversalServerResponse> => {
    const response = request.contextValues?.get(responseKey);
    if (response === undefined) throw new Error("the request has no response");
    try {
      const answer = await handler(request);
      return { ...answer, body: new GuardedBody(answer, response, failed) };
    } catch (error) {
      throw reportError(error, response, failed);
    }
  };
  return Object.assign(guarded, handler);
}

/** A response body whose failures, including failed writes, get an error response here. */
class GuardedBody implements AsyncIterableIterator<Uint8Array> {
  readonly #pieces: AsyncIterator<Uint8Array>;
  readonly #trailer: Headers | undefined;
  readonly #response: HttpResponse;
  readonly #failed: Failed;

  /** A response without a body gets an empty one, which detects headers that cannot be sent. */
  constructor(
    { body = nothing(), trailer }: UniversalServerResponse,
    response: HttpResponse,
    failed: Failed,
  ) {
    this.#pieces = body[Symbol.asyncIterator]();
    this.#trailer = trailer;
    this.#response = response;
    this.#failed = failed;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    try {
      const piece = await this.#pieces.next();
      if (piece.done === true) escapeLess(this.#trailer);
      return piece;
    } catch (error) {
      throw reportError(error, this.#response, this.#failed);
    }
  }

  async return(): Promise<IteratorResult<Uint8Array>> {
    return (await this.#pieces.return?.()) ?? ended;
  }

  /**
   * Called if the adapter could not write a piece or the headers. The adapter handles `error` after this
   * returns.
   */
  async throw(error: unknown): Promise<IteratorResult<Uint8Array>> {
    const reason = hasLeft(this.#response) ? clientGone() : error;
    reportError(error, this.#response, this.#failed);
    if (error instanceof Error) error.cause = brokenConnection();
    return (await this.#pieces.throw?.(reason)) ?? ended;
  }
}

const ended = { done: true, value: undefined } as const;

async function* nothing(): AsyncGenerator<Uint8Array> {}

/** Sends an error response unless the client has disconnected. @returns the error for the adapter */
function reportError(error: unknown, response: HttpResponse, failed: Failed): ConnectError {
  if (!hasLeft(response)) failed(response, error);
  return new ConnectError("the call has ended", Code.Aborted, undefined, undefined, error);
}

/** Whether the client has disconnected. */
function hasLeft(response: HttpResponse): boolean {
  // A pipelined response that waits for earlier ones has no socket yet.
  return "stream" in response ? response.stream.destroyed : response.req.socket.destroyed;
}

/** The adapters search the causes of an error for this code, and treat it as aborted. */
function brokenConnection(): NodeJS.ErrnoException {
  return Object.assign(new Error("the connection was broken"), { code: "ECONNRESET" });
}
