/**
 * Connections are read in turns of their user. A response before the end of its request's body blocks neither its
 * client nor its connection.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { constants, type ServerHttp2Stream, connect as connectHttp2 } from "node:http2";
import { connect, createServer, type AddressInfo, type ServerOpts, type Socket } from "node:net";
import test, { type ExecutionContext } from "ava";
import type { FairQueue } from "../../../src/lib/fair-queue.ts";
import type { Origin } from "../../../src/server/http/request-source.ts";
import { Connection } from "../../../src/server/http/connection.ts";
import { createHttp2Acceptor } from "../../../src/server/http/http2-server.ts";
import { defaultTransportLimits } from "../../../src/server/http/limits.ts";
import { parseFairly } from "../../../src/server/http/fair-shares/paced-parsing.ts";
import { PacedStream } from "../../../src/server/http/fair-shares/paced-stream.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { sessionStart } from "../../support/http2-frames.ts";
import { buffer } from "node:stream/consumers";
import type { Tokens } from "../../../src/access/tokens/tokens.ts";
import { openGateway } from "./support/gateway.ts";

// Node gives its parser to another connection as soon as one stops using HTTP: no pending bytes of the old one may
// reach it then.

const request = "GET / HTTP/1.1\r\n\r\n";

interface PacedConnection {
  readonly connection: Connection;
  readonly parsed: readonly string[];
  /** Pending bytes. */
  readonly waiting: (() => void)[];
}

/** An accepted connection, and a queue whose turns the test calls itself. */
async function connectionInTurns(t: ExecutionContext, origin: Origin, options: ServerOpts = {}) {
  const listener = createServer(options).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const client = connect((listener.address() as AddressInfo).port, "127.0.0.1");
  const [socket] = (await nextEvent(listener, "connection")) as [Socket];
  t.teardown(() => {
    client.destroy();
    socket.destroy();
    listener.close();
  });
  const waiting: (() => void)[] = [];
  const turns: Pick<FairQueue, "run"> = { run: (_name, work) => void waiting.push(work) };
  return { client, connection: new Connection(socket, origin), waiting, turns: turns as FairQueue };
}

/** A connection that has sent `sent`. On the socket its first piece waits for a turn; over TCP it is parsed at once. */
async function pacedConnection(
  t: ExecutionContext,
  { origin = { kind: "peer", uid: 1000 }, sent = request }: { origin?: Origin; sent?: string } = {},
): Promise<PacedConnection> {
  const { client, connection, waiting, turns } = await connectionInTurns(t, origin);
  const parsed: string[] = [];
  connection.socket.on("data", (piece: Buffer) => void parsed.push(piece.toString()));
  parseFairly(connection, turns);
  client.write(sent);
  await eventually(() => assert.equal(waiting.length, 1));
  return { connection, parsed, waiting };
}

const ends: Readonly<Record<string, (connection: Connection) => void>> = {
  "carries HTTP no longer": (connection) => {
    connection.hold();
  },
  "is destroyed": ({ socket }) => {
    socket.destroy();
  },
};
for (const [what, end] of Object.entries(ends)) {
  test(`pending bytes are not parsed once their connection ${what}`, async (t) => {
    const { connection, parsed, waiting } = await pacedConnection(t);
    end(connection);
    waiting.shift()?.();
    t.deepEqual(parsed, []);
  });
}

test("pending bytes are parsed in their turn", async (t) => {
  const { parsed, waiting } = await pacedConnection(t);
  t.deepEqual(parsed, []);
  waiting.shift()?.();
  t.deepEqual(parsed, [request]);
});

test("a body of declared size is parsed as it arrived, and the following bytes separately", async (t) => {
  const { connection, parsed, waiting } = await pacedConnection(t);
  const body = `${"x".repeat(40_000)}\r\n\r\n`;
  waiting.shift()?.();
  connection.bodyLeftBytes = body.length;
  connection.socket.unshift(Buffer.from(`${body}${request}${request}`));
  await eventually(() => assert.equal(waiting.length, 1));
  for (let turn = waiting.shift(); turn; turn = waiting.shift()) turn();
  t.deepEqual(
    parsed.map((text) => text.length),
    [request, body, request, request].map((text) => text.length),
  );
  t.is(connection.bodyLeftBytes, 0);
});

const tcp: Origin = { kind: "tcp", address: "127.0.0.1" };

test("blank lines are one piece however many they are, and more than the first of them wait for turns", async (t) => {
  const blank = "\r\n".repeat(500_000);
  const { parsed, waiting } = await pacedConnection(t, { origin: tcp, sent: blank });
  t.true(parsed.join("").length <= 2 * 16_384, "what comes before its first turn");
  await eventually(() => {
    waiting.shift()?.();
    assert.equal(parsed.join("").length, blank.length);
  });
  t.true(parsed.every((piece) => piece.length <= 16_384));
  t.true(parsed.length < 500, `${parsed.length} pieces`);
});

for (const at of [1, 2, 3]) {
  test(`a head whose end is cut after ${at} of its bytes ends its piece`, async (t) => {
    const cut = request.length - 4 + at;
    const { connection, parsed, waiting } = await pacedConnection(t, { sent: request.slice(0, cut) });
    waiting.shift()?.();
    connection.socket.unshift(Buffer.from(`${request.slice(cut)}\r\n${request}`));
    await eventually(() => assert.equal(waiting.length, 1));
    for (let turn = waiting.shift(); turn; turn = waiting.shift()) turn();
    t.deepEqual(parsed, [request.slice(0, cut), request.slice(cut), `\r\n${request}`]);
  });
}

// HTTP/2 and WebSockets read in turns of their user, and retain no more than what counts for their windows.

interface PacedSocket {
  readonly client: Socket;
  readonly connection: Connection;
  readonly stream: PacedStream;
  /** What waits for its turn. */
  readonly waiting: (() => void)[];
}

async function pacedStream(
  t: ExecutionContext,
  origin: Origin = { kind: "peer", uid: 1000 },
): Promise<PacedSocket> {
  const { turns, ...accepted } = await connectionInTurns(t, origin, { allowHalfOpen: true });
  return { ...accepted, stream: new PacedStream(accepted.connection, turns) };
}

const piece = 16 * 1024;

test("each turn hands on one piece, and the socket reads no more before the last one", async (t) => {
  const { client, connection, stream, waiting } = await pacedStream(t);
  const sizes: number[] = [];
  stream.on("data", (bytes: Buffer) => sizes.push(bytes.length));
  const sent = Buffer.alloc(10 * piece);
  client.write(sent);
  await eventually(() => assert.equal(waiting.length, 1));
  t.deepEqual(sizes, [], "nothing before its turn");
  t.true(connection.isQueued);
  t.true(connection.socket.isPaused());
  await eventually(() => {
    assert.ok(waiting.length <= 1, "one turn at a time");
    waiting.shift()?.();
    assert.equal(
      sizes.reduce((sum, size) => sum + size, 0),
      sent.length,
    );
  });
  t.true(sizes.every((size) => size <= piece));
});

test("a client whose user is unknown waits for a turn after its first piece", async (t) => {
  const { client, stream, waiting } = await pacedStream(t, { kind: "tcp", address: "127.0.0.1" });
  let received = 0;
  stream.on("data", (bytes: Buffer) => (received += bytes.length));
  client.write(Buffer.alloc(5 * piece));
  await eventually(() => assert.equal(waiting.length, 1));
  t.true(received > 0 && received < 2 * piece, String(received));
});

test("a reader that is behind holds the socket back, and gets all bytes and the end", async (t) => {
  const { client, stream, waiting } = await pacedStream(t);
  const sent = Buffer.alloc(20 * piece, "abc");
  client.end(sent);
  await eventually(() => {
    waiting.shift()?.();
    assert.ok(stream.readableLength >= stream.readableHighWaterMark);
  });
  t.deepEqual(waiting, []);
  const pieces: Buffer[] = [];
  const ended = once(stream, "end");
  stream.on("data", (bytes: Buffer) => pieces.push(bytes));
  await eventually(() => {
    waiting.shift()?.();
    assert.ok(stream.readableEnded);
  });
  await ended;
  t.true(Buffer.concat(pieces).equals(sent));
});

test("written data arrives, and the end of either side ends the other", async (t) => {
  const { client, connection, stream } = await pacedStream(t);
  stream.cork();
  for (const text of ["one ", "two ", "three"]) stream.write(text);
  stream.uncork();
  stream.end();
  let received = "";
  client.on("data", (bytes: Buffer) => (received += bytes.toString()));
  await nextEvent(client, "end");
  t.is(received, "one two three");
  stream.destroy();
  t.true(connection.socket.destroyed);
  const other = await pacedStream(t);
  other.stream.on("error", () => undefined);
  other.client.resetAndDestroy();
  await eventually(() => assert.ok(other.stream.destroyed));
});

function frame(type: number, flags: number, streamId: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(streamId, 5);
  return Buffer.concat([head, payload]);
}

/** A `POST` whose body follows. */
const post = frame(1, 4, 1, Buffer.from("\x83\x86\x04\x0a/v1/status\x01\x09localhost", "latin1"));
const oneByte = frame(0, 0, 1, Buffer.from("x"));
const windowUpdate = frame(8, 0, 0, Buffer.from("00000001", "hex"));

async function unreadStream(t: ExecutionContext, frames: readonly Buffer[]): Promise<ServerHttp2Stream> {
  const front = createHttp2Acceptor(defaultTransportLimits, () => undefined);
  const server = createServer((socket) => front.server.emit("connection", socket)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  client.on("error", () => undefined).resume();
  t.teardown(() => {
    client.destroy();
    front.destroy();
    server.close();
  });
  const opened = nextEvent(front.server, "stream");
  client.write(Buffer.concat([sessionStart, post]));
  const [stream] = (await opened) as [ServerHttp2Stream];
  client.write(Buffer.concat(frames));
  return stream;
}

test("a body retains nothing that was read along with it", async (t) => {
  const padding = Array<Buffer>(1_000).fill(windowUpdate);
  const stream = await unreadStream(t, Array.from({ length: 20 }, () => [oneByte, ...padding]).flat());
  await eventually(() => assert.equal(stream.readableLength, 20));
  const retained = new Set<ArrayBufferLike>();
  stream.on("data", ({ buffer }: Buffer) => retained.add(buffer));
  await eventually(() => assert.equal(stream.readableLength, 0));
  const bytes = [...retained].reduce((sum, { byteLength }) => sum + byteLength, 0);
  t.true(bytes < 1_000, `${bytes} bytes`);
});

test("a body that arrives byte by byte and is not read ends its stream", async (t) => {
  const stream = await unreadStream(t, Array<Buffer>(5_000).fill(oneByte));
  stream.on("error", () => undefined);
  await eventually(() => assert.ok(stream.destroyed));
  t.is(stream.rstCode, constants.NGHTTP2_ENHANCE_YOUR_CALM);
});

// A response before the end of its request's body blocks neither its client nor its connection.

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
      // The session has no stream any more.
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

test("unread responses of root are not limited", async (t) => {
  t.timeout(120_000);
  t.is(await heldBy(t, 0), connections);
});
