/** A call that is answered before its body has arrived holds up neither its client nor its connection. */
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { buffer } from "node:stream/consumers";
import test from "ava";
import type { Tokens } from "../../src/tokens/tokens.ts";
import { openDoor } from "./support/door.ts";

const messageBytes = 400_000;

/** The start of a gRPC or Connect stream: one message that is too large. */
function oversized(): Buffer {
  const envelope = Buffer.alloc(5 + messageBytes);
  envelope.writeUInt32BE(messageBytes, 1);
  return envelope;
}

test("HTTP/1.1: the rest of a body that was refused does not block the next request", async (t) => {
  await using door = await openDoor({ limits: { maxMessageBytes: 1024 } });
  const socket = connect(door.port, "127.0.0.1");
  let answers = "";
  socket.on("data", (chunk) => (answers += chunk.toString("latin1")));
  const head = `Host: localhost\r\nAuthorization: Bearer ${door.token}\r\n`;
  socket.write(
    `POST /svc.v1.FileService/WriteFile HTTP/1.1\r\n${head}Content-Type: application/connect+proto\r\n` +
      `Content-Length: ${messageBytes + 5}\r\n\r\n`,
  );
  socket.write(oversized());
  socket.write(`GET /healthz HTTP/1.1\r\n${head}Connection: close\r\n\r\n`);
  await once(socket, "close");
  t.regex(answers, /resource_exhausted/);
  t.regex(answers, /\{"status":"ok"\}$/);
});

test("HTTP/1.1: a body that goes on after its answer ends its connection", async (t) => {
  await using door = await openDoor({ limits: { maxMessageBytes: 1024 } });
  const socket = connect(door.port, "127.0.0.1");
  socket.on("error", () => undefined);
  let answer = "";
  socket.on("data", (chunk) => (answer += chunk.toString("latin1")));
  socket.write(
    `POST /svc.v1.FileService/WriteFile HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${door.token}\r\n` +
      "Content-Type: application/connect+proto\r\nContent-Length: 999999999\r\n\r\n",
  );
  socket.write(oversized());
  const drip = setInterval(() => socket.write("x"), 20);
  const startMs = performance.now();
  await new Promise<void>((resolve) => socket.once("close", () => resolve()));
  clearInterval(drip);
  t.regex(answer, /resource_exhausted/);
  t.true(performance.now() - startMs < 10_000);
});

for (const type of ["application/grpc", "application/connect+proto"]) {
  test(`HTTP/2, ${type}: a client that is still sending is told to stop, after its answer`, async (t) => {
    await using door = await openDoor({ limits: { maxMessageBytes: 1024 } });
    const session = connectHttp2(door.url);
    const stream = session.request({
      ":method": "POST",
      ":path": "/svc.v1.FileService/WriteFile",
      "content-type": type,
      te: "trailers",
      authorization: `Bearer ${door.token}`,
    });
    let answer = "";
    stream.on("data", (chunk: Buffer) => (answer += chunk.toString()));
    stream.on("trailers", (trailers) => (answer += `status ${String(trailers["grpc-status"])}`));
    stream.on("response", (headers) => (answer += `status ${String(headers["grpc-status"])}`));
    // More than the stream's window, and no end.
    stream.write(oversized());
    await once(stream, "close");
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
    test(`HTTP/2: of ${name}, ${isWhole ? "" : "not "}sent to its end, nothing stays`, async (t) => {
      t.timeout(10_000);
      await using door = await openDoor({
        limits: { idleTimeoutMs: 300, maxBodyBytes: 1024, maxMessageBytes: 1024 },
      });
      const session = connectHttp2(door.url);
      const ended = once(session, "close");
      const stream = session.request({
        ":method": "POST",
        ":path": path,
        "content-type": type,
        te: "trailers",
        ...(isKnown && { authorization: `Bearer ${door.token}` }),
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
      await door.listeners.stop();
      t.true(performance.now() - startMs < 4_000, "nobody is waited for");
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
  test(`${name}: who closes the connection after an upload that is refused early gets the answer`, async (t) => {
    t.timeout(60_000);
    const tokens: Tokens = { authenticate: () => ({ kind: "access", digest: "0123456789ab" }) };
    await using door = await openDoor({ limits: { maxMessageBytes: 1024, maxBodyBytes: 1024 }, tokens });
    const body = Buffer.alloc(4 * 1024 * 1024, "x");
    for (let round = 0; round < 20; round++) {
      const socket = connect(door.port, "127.0.0.1");
      socket.write(
        `POST ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${door.token}\r\nConnection: close\r\n` +
          `Content-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n`,
      );
      socket.write(body);
      t.regex(String(await buffer(socket)), answer);
    }
  });
}
