/** A console's WebSocket looks whether its client is still there. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import test from "ava";
import WebSocket, { WebSocketServer } from "ws";
import { ConsoleSocket } from "../../src/transport/console-socket.ts";

const intervalMs = 50;
const patienceMs = 20_000;

async function connected(autoPong: boolean) {
  const http = createServer().listen(0, "127.0.0.1");
  await once(http, "listening");
  const server = new WebSocketServer({ server: http });
  const client = new WebSocket(`ws://127.0.0.1:${(http.address() as AddressInfo).port}`, { autoPong });
  const [socket] = (await once(server, "connection")) as [WebSocket];
  const dispose = (): void => {
    client.terminate();
    server.close();
    http.close();
  };
  return { client, socket, [Symbol.dispose]: dispose };
}

test("who answers no sign of life is gone", async (t) => {
  using pair = await connected(false);
  const closed = once(pair.client, "close", { signal: AbortSignal.timeout(patienceMs) });
  const { gone } = new ConsoleSocket(pair.socket, intervalMs);
  let pings = 0;
  pair.client.on("ping", () => pings++);
  await Promise.all([closed, once(gone, "abort")]);
  t.true(pings >= 1, `${pings} pings`);
});

test("who answers stays", async (t) => {
  using pair = await connected(true);
  // Long enough for an answer where this process waits for the processor.
  const { gone } = new ConsoleSocket(pair.socket, 20 * intervalMs);
  // The third tells that the one before was answered.
  for (let pings = 0; pings < 3; pings++) await once(pair.client, "ping");
  await once(pair.socket, "pong");
  t.false(gone.aborted);
  t.is(pair.client.readyState, WebSocket.OPEN);
});

test("who does not answer the close is not waited for", async (t) => {
  using pair = await connected(true);
  await once(pair.client, "open");
  const closed = once(pair.socket, "close", { signal: AbortSignal.timeout(patienceMs) });
  // Its answer would be made of what it reads.
  pair.client.pause();
  const console = new ConsoleSocket(pair.socket);
  console.close();
  await closed;
  t.true(console.gone.aborted);
});

test("messages that are not taken stay where they are, also those without bytes", async (t) => {
  using pair = await connected(true);
  await once(pair.client, "open");
  const paused = Promise.withResolvers<undefined>();
  const pause = pair.socket.pause.bind(pair.socket);
  pair.socket.pause = () => {
    paused.resolve(undefined);
    pause();
  };
  const { gone } = new ConsoleSocket(pair.socket);
  const ack = JSON.stringify({ type: "ack", bytes: 1 });
  for (let sent = 0; sent < 20_000; sent++) pair.client.send(ack);
  const tooLate = once(AbortSignal.timeout(patienceMs), "abort");
  await Promise.race([paused.promise, once(gone, "abort"), tooLate]);
  t.true(pair.socket.isPaused);
});
