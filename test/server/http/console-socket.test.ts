/** A console's WebSocket checks whether its client is still connected. */
import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { create } from "@bufbuild/protobuf";
import test from "ava";
import WebSocket, { WebSocketServer } from "ws";
import { ConsoleInputSchema } from "../../../gen/svc/v1/app_pb.ts";
import { ConsoleSocket } from "../../../src/server/http/console-socket.ts";
import { nextEvent } from "../../support/eventually.ts";
import { rest } from "./support/clients.ts";
import { openGateway } from "./support/gateway.ts";

const intervalMs = 50;
const patienceMs = 20_000;

async function connected(autoPong: boolean) {
  const http = createServer().listen(0, "127.0.0.1");
  await once(http, "listening");
  const server = new WebSocketServer({ server: http });
  const client = new WebSocket(`ws://127.0.0.1:${(http.address() as AddressInfo).port}`, { autoPong });
  const [socket] = (await nextEvent(server, "connection")) as [WebSocket];
  const dispose = (): void => {
    client.terminate();
    server.close();
    http.close();
  };
  return { client, socket, [Symbol.dispose]: dispose };
}

test("a client that does not answer pings is disconnected", async (t) => {
  using pair = await connected(false);
  const closed = once(pair.client, "close", { signal: AbortSignal.timeout(patienceMs) });
  const { gone } = new ConsoleSocket(pair.socket, intervalMs);
  let pings = 0;
  pair.client.on("ping", () => pings++);
  await Promise.all([closed, once(gone, "abort")]);
  t.true(pings >= 1, `${pings} pings`);
});

test("a client that answers pings stays connected", async (t) => {
  using pair = await connected(true);
  // Long enough for a response while this process waits for the CPU.
  const { gone } = new ConsoleSocket(pair.socket, 20 * intervalMs);
  // The third ping shows that the second was answered.
  for (let pings = 0; pings < 3; pings++) await nextEvent(pair.client, "ping");
  await nextEvent(pair.socket, "pong");
  t.false(gone.aborted);
  t.is(pair.client.readyState, WebSocket.OPEN);
});

test("a close without a response is not waited for", async (t) => {
  using pair = await connected(true);
  await once(pair.client, "open");
  const closed = once(pair.socket, "close", { signal: AbortSignal.timeout(patienceMs) });
  // A client that reads would respond.
  pair.client.pause();
  const console = new ConsoleSocket(pair.socket);
  console.close();
  await closed;
  t.true(console.gone.aborted);
});

test("messages stay in the receive buffer until they are consumed, even empty ones", async (t) => {
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

test("a message retains only its own bytes", async (t) => {
  using pair = await connected(true);
  await once(pair.client, "open");
  const console = new ConsoleSocket(pair.socket);
  const inputs = console.inputs(create(ConsoleInputSchema));
  await inputs.next();
  pair.client.send(Buffer.from("x"));
  const { value } = await inputs.next();
  t.is(value?.data.buffer.byteLength, 1);
});

// Clients that request a console and disconnect before the response.

const upgrade =
  "GET /v1/apps/x/console?session=shell&token=unknown HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n" +
  "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

for (const place of ["unix", "TCP"]) {
  // An error of a socket without a listener would end the daemon, and this test's process.
  test(`${place}: a client that requests a console and disconnects affects nobody else`, async (t) => {
    await using gateway = await openGateway({ consoleTokens: { consume: () => undefined } });
    for (let round = 0; round < 50; round++) {
      const socket = connect(
        place === "unix" ? { path: gateway.socketPath } : { host: "127.0.0.1", port: gateway.port },
      );
      await once(socket, "connect");
      socket.write(upgrade, () => (place === "unix" ? socket.destroy() : socket.resetAndDestroy()));
      await nextEvent(socket, "close");
    }
    t.is((await rest(gateway, "/v1/status")).status, 200);
  });
}
