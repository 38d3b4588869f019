/** HTTP/1.1 over already accepted sockets. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { TransportLimits } from "./limits.ts";

export type Http1Handler = (
  request: IncomingMessage,
  response: ServerResponse,
  expectsContinue: boolean,
) => void;

/** Handles requests to upgrade to another protocol. */
export interface Upgrades {
  readonly accepts: (request: IncomingMessage) => boolean;
  readonly take: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
}

const answers: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  ERR_HTTP_REQUEST_TIMEOUT: "408 Request Timeout",
};

/** @param isAtWork whether a silent connection waits for a response of the daemon */
export function createHttp1Server(
  limits: TransportLimits,
  handle: Http1Handler,
  isAtWork: (socket: Socket) => boolean,
  upgrades: Upgrades,
): Server {
  const server = createServer({
    maxHeaderSize: limits.maxHeaderBytes,
    headersTimeout: limits.headersTimeoutMs,
    // Bodies have separate limits, because uploads may take long.
    requestTimeout: 0,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    connectionsCheckingInterval: Math.max(100, Math.min(5_000, limits.headersTimeoutMs / 4)),
    noDelay: true,
    // A declined upgrade gets a plain HTTP response.
    shouldUpgradeCallback: upgrades.accepts,
  });
  server.on("upgrade", (request, socket, head) => upgrades.take(request, socket, head));
  server.maxHeadersCount = limits.maxHeaderCount;

  server.on("request", (request, response) => handle(request, response, false));
  server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) =>
    handle(request, response, true),
  );

  // A connection may be silent while a handler works, but not while the peer should send its body or read the
  // response.
  server.setTimeout(limits.idleTimeoutMs, (socket: Socket) => {
    if (!isAtWork(socket)) socket.destroy();
  });
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    if (socket.writable && !("bytesWritten" in socket && (socket as Socket).bytesWritten > 0)) {
      const status = answers[error.code ?? ""] ?? "400 Bad Request";
      socket.write(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    }
    socket.destroy();
  });
  // This event starts the timers for headers and idle connections; a server that never listens would not emit
  // it.
  server.emit("listening");
  return server;
}
