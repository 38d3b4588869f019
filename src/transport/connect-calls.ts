/**
 * Connect's own way of a call, behind node's servers of HTTP/1.1 and of HTTP/2 alike. Connect's adapters for them would
 * print a stack for every client that leaves while it is being written to, and leave one hanging whose answer cannot be made.
 */
import type { ServerResponse } from "node:http";
import { createConnectRouter } from "@connectrpc/connect";
import type { ConnectRouter, ConnectRouterOptions, ContextValues } from "@connectrpc/connect";
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import { clientGone } from "../errors.ts";
import { escapeLess } from "../rpc/grpc-status.ts";
import { pathOf } from "./http.ts";
import type { HttpRequest, HttpResponse } from "./http.ts";

export interface ConnectCallsOptions extends ConnectRouterOptions {
  readonly routes: (router: ConnectRouter) => void;
  readonly contextValues: (request: HttpRequest) => ContextValues;
  /** Answers what failed outside of a call. */
  readonly failed: (request: HttpRequest, response: HttpResponse, error: unknown) => void;
}

/** Answers a request, or says `false` at once when its path is no procedure. */
export type ConnectCalls = (request: HttpRequest, response: HttpResponse) => boolean;

export function createConnectCalls({
  routes,
  contextValues,
  failed,
  ...options
}: ConnectCallsOptions): ConnectCalls {
  const router = createConnectRouter({ acceptCompression: [compressionGzip, compressionBrotli], ...options });
  routes(router);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));

  return (request, response) => {
    const handler = handlers.get(pathOf(request));
    if (handler === undefined) return false;
    const nodeResponse = response as ServerResponse;
    const call = universalRequestFromNodeRequest(request, nodeResponse, undefined, contextValues(request));
    const isGone = (): boolean => hasLeft(response);
    handler(call)
      .then(({ body, ...answer }) =>
        universalResponseToNodeResponse(
          body === undefined
            ? answer
            : { ...answer, body: tellingWhoLeft(body, isGone, () => escapeLess(answer.trailer)) },
          nodeResponse,
        ),
      )
      .catch((error: unknown) => {
        if (!isGone()) failed(request, response, error);
      });
    return true;
  };
}

/** Whether nobody is there any more who could be answered. */
function hasLeft(response: HttpResponse): boolean {
  // A response that waits for those before it has no socket yet.
  return "stream" in response ? response.stream.destroyed : response.req.socket.destroyed;
}

/**
 * A body that is told of a client who has left as such, and not as whatever the write to it failed with.
 * @param ended the trailers are written, and not sent yet
 */
function tellingWhoLeft(
  body: AsyncIterable<Uint8Array>,
  isGone: () => boolean,
  ended: () => void,
): AsyncIterable<Uint8Array> {
  const pieces = body[Symbol.asyncIterator]();
  const telling: AsyncIterator<Uint8Array> = {
    next: async () => {
      const piece = await pieces.next();
      if (piece.done === true) ended();
      return piece;
    },
    return: async (value) => (await pieces.return?.(value)) ?? { done: true, value: undefined },
    throw: async (error) => {
      const told: unknown = isGone() ? clientGone() : error;
      if (pieces.throw === undefined) throw told;
      return pieces.throw(told);
    },
  };
  return { [Symbol.asyncIterator]: () => telling };
}
