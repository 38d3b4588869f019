/** A response before the end of its request's body blocks neither its client nor its connection. */
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import test, { type ExecutionContext } from "ava";
import type { Tokens } from "../../../src/access/tokens/tokens.ts";
import { openGateway } from "./support/gateway.ts";
import { nextEvent } from "../../support/eventually.ts";

const messageBytes = 400_000;

/** The start of a gRPC or Connect stream: one message that is too large. */
function oversized(): Buffer {
  const envelope = Buffer.alloc(5 + messageBytes);
  envelope.writeUInt32BE(messageBytes, 1);
  return envelope;
}

test("HTTP/1.1: the rest of a rejected body does not block the next request", async (t) => {
  await using gateway = await openGateway({ limits: { maxMessageBytes: 1024 } });
  const socket = connect(gateway.port, "127.0.0.1");
  let answers = "";
  socket.on("data", (chunk) => (answers += chunk.toString("latin1")));
  const head = `Host: localhost\r\nAuthorization: Bearer ${gateway.token}\r\n`;
  socket.write(
    `POST /svc.v1.FileService/WriteFile HTTP/1.1\r\n${head}Content-Type: application/connect+proto\r\n` +
      `Content-Length: ${messageBytes + 5}\r\n\r\n`,
  );
  socket.write(oversized());
  socket.write(`GET /healthz HTTP/1.1\r\n${head}Connection: close\r\n\r\n`);
  await nextEvent(socket, "close");
  t.regex(answers, /resource_exhausted/);
  t.regex(answers, /\{"status":"ok"\}$/);
});

test("HTTP/1.1: a body that continues after its response closes its connection", async (t) => {
  await using gateway = await openGateway({ limits: { maxMessageBytes: 1024 } });
  const socket = connect(gateway.port, "127.0.0.1");
  socket.on("error", () => undefined);
  let answer = "";
  socket.on("data", (chunk) => (answer += chunk.toString("latin1")));
  socket.write(
    `POST /svc.v1.FileService/WriteFile HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${gateway.token}\r\n` +
      "Content-Type: application/connect+proto\r\nContent-Length: 999999999\r\n\r\n",
  );
  socket.write(oversized());
  const drip = setInterval(() => socket.write("x"), 20);
  const startMs = performance.now();
  await nextEvent(socket, "close");
  clearInterval(drip);
  t.regex(answer, /resource_exhausted/);
  t.true(performance.now() - startMs < 10_000);
});

for (const type of ["application/grpc", "application/connect+proto"]) {
  test(`HTTP/2, ${type}: a client that is still sending gets a reset after its response`, async (t) => {
    await using gateway = await openGateway({ limits: { maxMessageBytes: 1024 } });
    const session = connectHttp2(gateway.url);
    const stream = session.request({
      ":method": "POST",
      ":path": "/svc.v1.FileService/WriteFile",
      "content-type": type,
      te: "trailers",
      authorization: `Bearer ${gateway.token}`,
    });
    let answer = "";
    stream.on("data", (chunk: Buffer) => (answer += chunk.toString()));
    stream.on("trailers", (trailers) => (answer += `status ${String(trailers["grpc-status"])}`));
    stream.on("response", (headers) => (answer += `status ${String(headers["grpc-status"])}`));
    // More than the stream's window, without an end.
    stream.write(oversized());
    await nextEvent(stream, "close");
    t.is(stream.rstCode, 0);
    t.regex(answer, /status 8|resource_exhausted/);
    session.close();
  });
}

const startApp = "/svc.v1.AppService/StartApp";
const refused = {
  "a stranger's body": { path: "/v1/apps/x/start", type: "application/json", isKnown: false },
  "a body of the wrong type": { path: "/v1/apps/x/start", type: "text/plain", isKnown: true },
  "a body that is too large": { path: "/v1/apps/x/start", type: "application/json", isKnown: true },
  "a message that is too large for Connect": { path: startApp, type: "application/json", isKnown: true },
  "a message that is too large for gRPC": { path: startApp, type: "application/grpc", isKnown: true },
} as const;

for (const [name, { path, type, isKnown }] of Object.entries(refused)) {
  for (const isWhole of [true, false]) {
    test(`HTTP/2: ${name}, ${isWhole ? "" : "not "}sent to its end, leaves nothing`, async (t) => {
      t.timeout(10_000);
      await using gateway = await openGateway({
        limits: { idleTimeoutMs: 300, maxBodyBytes: 1024, maxMessageBytes: 1024 },
      });
      const session = connectHttp2(gateway.url);
      const ended = once(session, "close");
      const stream = session.request({
        ":method": "POST",
        ":path": path,
        "content-type": type,
        te: "trailers",
        ...(isKnown && { authorization: `Bearer ${gateway.token}` }),
      });
      const closed = once(stream.resume(), "close");
      // More than the window of a stream.
      stream.write(Buffer.alloc(400_000, "A"));
      if (isWhole) stream.end();
      await closed;
      t.is(stream.rstCode, 0);
      // It has no stream any more.
      await ended;
      const startMs = performance.now();
      await gateway.listeners.stop();
      t.true(performance.now() - startMs < 4_000, "nothing is waited for");
    });
  }
}

const refusedEarly = {
  REST: { path: "/v1/apps", type: "application/json", answer: /^HTTP\/1\.1 413 .*body_too_large/s },
  Connect: { path: startApp, type: "application/json", answer: /^HTTP\/1\.1 429 .*resource_exhausted/s },
  "Connect's gate": {
    path: "/svc.v1.TokenService/GetTokenStatus",
    type: "application/proto",
    answer: /^HTTP\/1\.1 403 .*permission_denied/s,
  },
  "a stream of Connect's": {
    path: "/svc.v1.FileService/WriteFile",
    type: "application/connect+proto",
    answer: /^HTTP\/1\.1 200 .*resource_exhausted/s,
  },
} as const;

for (const [name, { path, type, answer }] of Object.entries(refusedEarly)) {
  test(`${name}: a client that closes the connection after an early rejection of its upload gets the response`, async (t) => {
    t.timeout(60_000);
    const tokens: Tokens = { authenticate: () => ({ kind: "access", digest: "0123456789ab" }) };
    await using gateway = await openGateway({
      limits: { maxMessageBytes: 1024, maxBodyBytes: 1024 },
      tokens,
    });
    const body = Buffer.alloc(4 * 1024 * 1024, "x");
    for (let round = 0; round < 20; round++) {
      const socket = connect(gateway.port, "127.0.0.1");
      socket.write(
        `POST ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${gateway.token}\r\nConnection: close\r\n` +
          `Content-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n`,
      );
      socket.write(body);
      t.regex(String(await buffer(socket)), answer);
    }
  });
}

// Unread responses use memory, which is limited per user.

/** Some 4 MB: a user's limit allows sixteen. */
const apps = Array.from({ length: 400 }, (_, n) => ({ id: `app-${n}`, name: "x".repeat(10_000) }));
const connections = 40;

/** The number of open connections that read nothing, once all have their response. */
async function heldBy(t: ExecutionContext, uid: number): Promise<number> {
  const gateway = await openGateway({
    loadPeerUid: () => () => uid,
    handlers: {
      app: {
        listApps: () => ({ apps }),
      },
    },
  });
  t.teardown(() => gateway[Symbol.asyncDispose]());
  const sockets = await Promise.all(Array.from({ length: connections }, () => ask(gateway.socketPath)));
  t.teardown(() => sockets.forEach((socket) => socket.destroy()));
  // Each has received the start of its response, or was closed.
  await Promise.all(sockets.map((socket) => once(socket, "readable")));
  return (await Promise.all(sockets.map(hasWhole))).filter(Boolean).length;
}

async function ask(socketPath: string): Promise<Socket> {
  const socket = connect(socketPath).on("error", () => undefined);
  await once(socket, "connect");
  socket.write("GET /v1/apps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  return socket;
}

async function hasWhole(socket: Socket): Promise<boolean> {
  let bytes = 0;
  socket.on("data", (data: Buffer) => (bytes += data.length));
  socket.resume();
  if (!socket.destroyed) await nextEvent(socket, "close");
  return bytes > 4_000_000;
}

test("unread responses of a user are limited to about 64 MiB, and further connections are closed", async (t) => {
  t.timeout(120_000);
  const held = await heldBy(t, 4001);
  t.true(held > 4 && held < 20, `${held} of ${connections}`);
});

test("root has no such limit", async (t) => {
  t.timeout(120_000);
  t.is(await heldBy(t, 0), connections);
});
