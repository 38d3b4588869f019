/** What becomes of a request body when its call is answered before it has arrived whole. */
import type { IncomingMessage, ServerResponse } from "node:http";

/** How long the rest of a body that nobody wants may take, so that the client gets to read its answer. */
const lingerMs = 5_000;

/**
 * For an HTTP/1.1 request whose reader may leave early. Node would destroy the request then, but not its connection, which
 * would stand still for ever with the rest of the body in it. Here the rest is read and dropped, or the connection ends.
 */
export function dropUnreadBody(request: IncomingMessage, response: ServerResponse): void {
  request[Symbol.asyncIterator] = () => request.iterator({ destroyOnReturn: false });
  response.once("finish", () => {
    if (request.complete) return;
    request.on("error", () => undefined);
    request.resume();
    const timer = setTimeout(() => request.destroy(), lingerMs);
    request.once("close", () => clearTimeout(timer));
  });
}
