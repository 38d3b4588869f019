/**
 * What Connect's adapters for node and for Express leave open. They print a stack for every client that leaves while it is
 * being written to, as they take its write error for a defect, and they leave one hanging whose answer cannot be sent. The
 * handlers that they run are wrapped here: what failed is answered, and then told to the adapter as a connection that
 * broke, which is the one thing that both pass over in silence.
 */
import { Code, ConnectError, createContextKey, type ConnectRouter } from "@connectrpc/connect";
import type { UniversalHandler, UniversalServerResponse } from "@connectrpc/connect/protocol";
import { clientGone } from "../errors.ts";
import { escapeLess } from "../rpc/grpc-status.ts";
import type { HttpResponse } from "./http.ts";

/** Under which the transport files the response to a call. */
export const responseKey = createContextKey<HttpResponse | undefined>(undefined, {
  description: "svc response",
});

/** Answers what failed outside of a call. */
export type Failed = (response: HttpResponse, error: unknown) => void;

/** `routes`, with handlers that leave nothing for an adapter to print. */
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
    if (response === undefined) throw new Error("a call came without its response");
    try {
      const answer = await handler(request);
      return { ...answer, body: new GuardedBody(answer, response, failed) };
    } catch (error) {
      throw told(error, response, failed);
    }
  };
  return Object.assign(guarded, handler);
}

/** A body whose failures, and those of the writes of its pieces, are answered here. */
class GuardedBody implements AsyncIterableIterator<Uint8Array> {
  readonly #pieces: AsyncIterator<Uint8Array>;
  readonly #trailer: Headers | undefined;
  readonly #response: HttpResponse;
  readonly #failed: Failed;

  /** An answer without a body gets an empty one, which hears of headers that cannot be sent. */
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
      throw told(error, this.#response, this.#failed);
    }
  }

  async return(): Promise<IteratorResult<Uint8Array>> {
    return (await this.#pieces.return?.()) ?? ended;
  }

  /** The adapter could not write a piece, or the headers before the first. It judges `error` once this has returned. */
  async throw(error: unknown): Promise<IteratorResult<Uint8Array>> {
    const reason = hasLeft(this.#response) ? clientGone() : error;
    told(error, this.#response, this.#failed);
    if (error instanceof Error) error.cause = brokenConnection();
    return (await this.#pieces.throw?.(reason)) ?? ended;
  }
}

const ended = { done: true, value: undefined } as const;

async function* nothing(): AsyncGenerator<Uint8Array> {}

/** Answers what failed, unless nobody is there to be answered. @returns what the adapter is told of it */
function told(error: unknown, response: HttpResponse, failed: Failed): ConnectError {
  if (!hasLeft(response)) failed(response, error);
  return new ConnectError("the call is over", Code.Aborted, undefined, undefined, error);
}

/** Whether nobody is there any more who could be answered. */
function hasLeft(response: HttpResponse): boolean {
  // A response that waits for those before it has no socket yet.
  return "stream" in response ? response.stream.destroyed : response.req.socket.destroyed;
}

/** What the adapters, which look along the causes of an error, call aborted. */
function brokenConnection(): NodeJS.ErrnoException {
  return Object.assign(new Error("the connection broke"), { code: "ECONNRESET" });
}
