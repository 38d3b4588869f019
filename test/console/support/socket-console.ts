/** A console over a WebSocket, as in a browser. */
import assert from "node:assert/strict";
import { once } from "node:events";
import WebSocket from "ws";
import { eventually } from "../../support/eventually.ts";

export interface SocketConsole {
  readonly socket: WebSocket;
  /** The terminal's output so far. */
  readonly shown: () => string;
  /** The text frames so far. */
  readonly textFrames: readonly Record<string, unknown>[];
  readonly closed: Promise<number>;
  type(text: string): void;
  sendMessage(message: object): void;
  /** Resolves once the terminal has shown it. */
  shows(text: string | RegExp): Promise<void>;
}

export interface ListenerAddress {
  readonly port?: number;
  readonly socketPath?: string;
}

export interface ConsoleRequest {
  readonly appId: string;
  readonly session: string;
  readonly token: string;
  readonly tokenIn?: "query" | "protocols";
  readonly headers?: Readonly<Record<string, string>>;
  /** The last characters of the output; absent: all. */
  readonly maxShownChars?: number;
}

export function connectConsole(address: ListenerAddress, request: ConsoleRequest): WebSocket {
  const { appId, session, token, tokenIn = "query", headers = {} } = request;
  const query = new URLSearchParams({ session, ...(tokenIn === "query" ? { token } : {}) });
  const path = `/v1/apps/${appId}/console?${query.toString()}`;
  const url =
    address.socketPath === undefined
      ? `ws://127.0.0.1:${address.port ?? 0}${path}`
      : `ws+unix:${address.socketPath}:${path}`;
  const protocols = tokenIn === "protocols" ? ["svc.console.v1", `svc.token.${token}`] : [];
  return new WebSocket(url, protocols, { headers });
}

/** @throws Error with the status of the rejection */
export async function openConsole(address: ListenerAddress, request: ConsoleRequest): Promise<SocketConsole> {
  const socket = connectConsole(address, request);
  const { maxShownChars } = request;
  let shown = "";
  const textFrames: Record<string, unknown>[] = [];
  socket.on("message", (data: Buffer, isBinary) => {
    if (isBinary) {
      shown += data.toString("utf8");
      if (maxShownChars !== undefined) shown = shown.slice(-maxShownChars);
    } else textFrames.push(JSON.parse(data.toString("utf8")) as Record<string, unknown>);
  });
  const closed = once(socket, "close").then(([code]) => code as number);
  closed.catch(() => undefined);
  await once(socket, "open");
  return {
    socket,
    shown: () => shown,
    textFrames,
    closed,
    type: (text) => socket.send(Buffer.from(text)),
    sendMessage: (message) => socket.send(JSON.stringify(message)),
    shows: (text) =>
      eventually(() => {
        assert.ok(typeof text === "string" ? shown.includes(text) : text.test(shown), shown.slice(-2_000));
      }, 20_000),
  };
}

/** The status of the rejection; 101 if it is accepted. */
export async function statusOf(address: ListenerAddress, request: ConsoleRequest): Promise<number> {
  const socket = connectConsole(address, request);
  const { promise, resolve } = Promise.withResolvers<number>();
  socket.on("open", () => resolve(101));
  socket.on("unexpected-response", (_request, response) => resolve(response.statusCode ?? 0));
  socket.on("error", () => undefined);
  const status = await promise;
  socket.terminate();
  return status;
}
