/** Requests that take long: slow peers hold no resource, and a slow handler gets its time. */
import assert from "node:assert/strict";
import { once } from "node:events";
import {
  connect as connectHttp2,
  constants,
  type ClientHttp2Session,
  type OutgoingHttpHeaders,
} from "node:http2";
import { connect, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { nextEvent, eventually } from "../../support/eventually.ts";
import { openStatus, sessionStart } from "../../support/http2-frames.ts";
import { openGateway, type TestGateway } from "./support/gateway.ts";
import type { FakeHandlers } from "./support/fake-services.ts";

// Peers that stop while sending or reading hold no resource for long.

/** Far below the defaults, far above the needs of a busy host. */
const mostMs = 10_000;
const logLines = "/svc.v1.AppService/StreamAppLogs";

/** Starts a request over HTTP/1.1 and sends only `body`. */
function beginHttp1(gateway: TestGateway, line: string, headers: string, body: Buffer): Socket {
  const socket = connect(gateway.port, "127.0.0.1");
  socket.on("error", () => undefined);
  socket.write(
    `${line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${gateway.token}\r\n${headers}\r\n\r\n`,
  );
  socket.write(body);
  return socket;
}

function beginHttp2(gateway: TestGateway): ClientHttp2Session {
  const session = connectHttp2(gateway.url);
  session.on("error", () => undefined);
  return session;
}

function requestOver(session: ClientHttp2Session, gateway: TestGateway, headers: OutgoingHttpHeaders) {
  const stream = session.request({ ":method": "POST", authorization: `Bearer ${gateway.token}`, ...headers });
  stream.on("error", () => undefined);
  return stream;
}

function closed(connection: NodeJS.EventEmitter): Promise<void> {
  return new Promise((resolve) => connection.once("close", () => resolve()));
}

const envelope = Buffer.concat([Buffer.from([0, 0, 0, 0, 10]), Buffer.from('{"id":"x"}')]);

const bodies = {
  Connect: { path: "/svc.v1.AppService/StartApp", type: "application/json" },
  gRPC: { path: "/svc.v1.AppService/StartApp", type: "application/grpc" },
  REST: { path: "/v1/apps/x/start", type: "application/json" },
} as const;

for (const [protocol, { path, type }] of Object.entries(bodies)) {
  const limits = { requestTimeoutMs: 300 };
  if (protocol !== "gRPC") {
    test(`HTTP/1.1, ${protocol}: a body that arrives slowly costs its connection`, async (t) => {
      t.timeout(mostMs);
      await using gateway = await openGateway({ limits });
      const headers = `Content-Type: ${type}\r\nContent-Length: 1000000`;
      const socket = beginHttp1(gateway, `POST ${path}`, headers, Buffer.from("{")).resume();
      const drip = setInterval(() => socket.write(" "), 20);
      await closed(socket);
      clearInterval(drip);
      t.pass();
    });
  }

  test(`HTTP/2, ${protocol}: a body that arrives slowly costs its stream`, async (t) => {
    t.timeout(mostMs);
    await using gateway = await openGateway({ limits });
    const session = beginHttp2(gateway);
    const stream = requestOver(session, gateway, { ":path": path, "content-type": type, te: "trailers" });
    const drip = setInterval(() => stream.writable && stream.write("\0"), 20);
    await closed(stream.resume());
    clearInterval(drip);
    session.destroy();
    t.pass();
  });
}

test("a body with a declared size above the limit is rejected before it arrives", async (t) => {
  t.timeout(mostMs);
  await using gateway = await openGateway({ limits: { requestTimeoutMs: 60_000 } });
  const headers = "Content-Type: application/json\r\nContent-Length: 1048577";
  const socket = beginHttp1(gateway, "POST /v1/apps", headers, Buffer.from("{"));
  const answer = await new Promise<string>((resolve) =>
    socket.once("data", (chunk) => resolve(String(chunk))),
  );
  t.regex(answer, /^HTTP\/1\.1 413 /);
  socket.destroy();
});

test("a request that arrives byte by byte is parsed correctly", async (t) => {
  t.timeout(mostMs);
  await using gateway = await openGateway();
  const socket = connect(gateway.port, "127.0.0.1").setNoDelay();
  const answer = new Promise<string>((resolve) => socket.once("data", (chunk) => resolve(String(chunk))));
  for (const byte of "PUT /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") {
    socket.write(byte);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  t.regex(await answer, /^HTTP\/1\.1 401 /);
  socket.destroy();
});

test("a session without a call is closed, however often it pings", async (t) => {
  t.timeout(mostMs);
  await using gateway = await openGateway({ limits: { idleTimeoutMs: 300, headersTimeoutMs: 60_000 } });
  const session = beginHttp2(gateway);
  const stream = requestOver(session, gateway, { ":method": "GET", ":path": "/v1/status" });
  await closed(stream.resume());
  const pings = setInterval(() => session.destroyed || session.ping(() => undefined), 20);
  await closed(session);
  clearInterval(pings);
  t.pass();
});

/** Handlers that report when they are aborted. */
function watched(): { handlers: FakeHandlers; left: Promise<void> } {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const handlers: FakeHandlers = {
    app: {
      async *streamAppLogs() {
        try {
          for (;;) {
            await Promise.resolve();
            yield { lines: [{ text: "x".repeat(65_536) }] };
          }
        } finally {
          resolve(undefined);
        }
      },
    },
    file: {
      async writeFile(requests) {
        try {
          for await (const _piece of requests);
        } finally {
          resolve(undefined);
        }
        return {};
      },
    },
  };
  return { handlers, left: promise };
}

const idle = {
  idleTimeoutMs: 300,
  requestTimeoutMs: 60_000,
  headersTimeoutMs: 60_000,
  keepAliveTimeoutMs: 60_000,
};

for (const [what, begin] of Object.entries({
  "HTTP/1.1: an upload that stops": (gateway: TestGateway) =>
    beginHttp1(
      gateway,
      "PUT /v1/files/content?path=/tmp&name=x",
      "Content-Length: 1000000",
      Buffer.from("some"),
    ),
  "HTTP/1.1: an answer that nobody reads": (gateway: TestGateway) => {
    const headers = `Content-Type: application/connect+json\r\nContent-Length: ${envelope.length}`;
    return beginHttp1(gateway, `POST ${logLines}`, headers, envelope).pause();
  },
  "HTTP/2: an upload that stops": (gateway: TestGateway) => {
    const session = beginHttp2(gateway);
    const path = "/v1/files/content?path=/tmp&name=x";
    requestOver(session, gateway, { ":method": "PUT", ":path": path }).write("some");
    return session;
  },
  "HTTP/2: an answer that nobody reads": (gateway: TestGateway) => {
    const session = beginHttp2(gateway);
    const headers = { ":path": logLines, "content-type": "application/connect+json" };
    requestOver(session, gateway, headers).pause().end(envelope);
    return session;
  },
})) {
  test(`${what} is aborted after the idle time`, async (t) => {
    t.timeout(mostMs);
    const { handlers, left } = watched();
    await using gateway = await openGateway({ handlers, limits: idle });
    const connection = begin(gateway);
    await left;
    connection.destroy();
    t.pass();
  });
}

test("HTTP/2: a client that pauses reading does not mistake the rest of a response for its end", async (t) => {
  t.timeout(mostMs);
  const { handlers, left } = watched();
  await using gateway = await openGateway({ handlers, limits: idle });
  const session = beginHttp2(gateway);
  const headers = { ":path": logLines, "content-type": "application/connect+json" };
  const stream = requestOver(session, gateway, headers).pause();
  stream.end(envelope);
  await left;
  await closed(stream.resume());
  t.is(stream.rstCode, constants.NGHTTP2_CANCEL);
  session.destroy();
});

for (const isThere of [true, false]) {
  const what = isThere
    ? "goes on, however long nobody says anything"
    : "is left when nobody is there any more";
  test(`HTTP/2: a bidirectional stream ${what}`, async (t) => {
    t.timeout(mostMs);
    let isWhole = false;
    const { promise: left, resolve: leave } = Promise.withResolvers<undefined>();
    const attachConsole: NonNullable<FakeHandlers["app"]>["attachConsole"] = async function* (
      inputs,
      { signal },
    ) {
      signal.addEventListener("abort", () => leave(undefined));
      yield { output: { case: "opened", value: {} } };
      if (isThere) await sleep(idle.idleTimeoutMs * 4);
      else for await (const _input of inputs);
      isWhole = !signal.aborted;
      yield { output: { case: "exit", value: {} } };
    };
    await using gateway = await openGateway({ handlers: { app: { attachConsole } }, limits: idle });
    // A client that stops reading answers no ping, either.
    const socket = connect(gateway.port, "127.0.0.1");
    const relay = new Duplex({
      read: () => undefined,
      write: (bytes: Buffer, _encoding, done) => void socket.write(bytes, done),
    });
    let isOpen = true;
    socket.on("data", (bytes: Buffer) => isOpen && relay.push(bytes));
    const session = connectHttp2(gateway.url, { createConnection: () => relay });
    session.on("error", () => undefined);
    const stream = requestOver(session, gateway, {
      ":path": "/svc.v1.AppService/AttachConsole",
      "content-type": "application/grpc",
      te: "trailers",
    });
    // An empty message.
    stream.write(Buffer.alloc(5));
    await nextEvent(stream, "data");
    if (isThere) await nextEvent(stream.resume(), "trailers");
    else {
      isOpen = false;
      await left;
    }
    t.is(isWhole, isThere);
    session.destroy();
    socket.destroy();
  });
}

// Requests without a body whose handlers take longer than clients may: a handler may take long.

const limits = { idleTimeoutMs: 200, requestTimeoutMs: 200 };
const slow: FakeHandlers = {
  app: {
    async startApp({ id }) {
      await sleep(700);
      return { id };
    },
  },
  daemon: {
    async getStatus() {
      await sleep(700);
      return { version: "slow" };
    },
  },
};

const connectGet = "/svc.v1.DaemonService/GetStatus?connect=v1&encoding=json&message=%7B%7D";
const requests = { "POST /v1/apps/a/start": "a", "GET /v1/status": "slow", [`GET ${connectGet}`]: "slow" };

async function overHttp1(gateway: TestGateway, line: string): Promise<string> {
  const socket = connect(gateway.port, "127.0.0.1");
  socket.write(
    `${line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${gateway.token}\r\nConnection: close\r\n\r\n`,
  );
  return String(await buffer(socket));
}

async function overHttp2(gateway: TestGateway, line: string): Promise<string> {
  const session = connectHttp2(gateway.url);
  const [method, path] = line.split(" ");
  const authorization = `Bearer ${gateway.token}`;
  const stream = session.request({ ":method": method, ":path": path, authorization }, { endStream: true });
  const body = String(await buffer(stream));
  session.destroy();
  return body;
}

for (const [line, expected] of Object.entries(requests)) {
  for (const [protocol, ask] of Object.entries({ "HTTP/1.1": overHttp1, "HTTP/2": overHttp2 })) {
    test(`${protocol}: ${line} gets its response, however long that takes`, async (t) => {
      await using gateway = await openGateway({ limits, handlers: slow });
      t.true((await ask(gateway, line)).includes(`"${expected}"`));
    });
  }
}

test("a response that cannot be sent does not delay later ones on its connection", async (t) => {
  await using gateway = await openGateway({
    handlers: {
      ...slow,
      app: {
        async *streamAppLogs(_request, { responseHeader }) {
          responseHeader.set("x-odd", "\u0001");
          yield await Promise.resolve({ lines: [] });
        },
      },
    },
  });
  const common = `Host: localhost\r\nAuthorization: Bearer ${gateway.token}\r\n`;
  const envelope = Buffer.from([0, 0, 0, 0, 3, 0x0a, 1, 0x78]);
  const socket = connect(gateway.port, "127.0.0.1");
  socket.write(`GET /v1/status HTTP/1.1\r\n${common}\r\n`);
  socket.write(
    `POST /svc.v1.AppService/StreamAppLogs HTTP/1.1\r\n${common}Content-Type: application/connect+proto\r\n` +
      `Content-Length: ${envelope.length}\r\n\r\n`,
  );
  socket.write(envelope);
  socket.write(`GET /v1/status HTTP/1.1\r\n${common}Connection: close\r\n\r\n`);
  const answers = String(await buffer(socket));
  t.is(answers.split("HTTP/1.1 200 OK").length - 1, 3, answers);
});

test("pipelined requests wait unread for the responses before them", async (t) => {
  let [underWay, most] = [0, 0];
  const slowStart: FakeHandlers = {
    app: {
      async startApp({ id }) {
        most = Math.max(most, ++underWay);
        await sleep(1);
        underWay--;
        return { id };
      },
    },
  };
  await using gateway = await openGateway({ handlers: slowStart });
  const common = `Host: localhost\r\nAuthorization: Bearer ${gateway.token}\r\n`;
  const start = `POST /v1/apps/a/start HTTP/1.1\r\n${common}`;
  const socket = connect(gateway.port, "127.0.0.1");
  // With a body whose bytes look like the end of a head.
  const bodied = `${start}Content-Type: application/json\r\nContent-Length: 8\r\n\r\n{}\r\n\r\n\r\n`;
  socket.write(`${start}\r\n${bodied}`.repeat(500));
  socket.write(`${start}Connection: close\r\n\r\n`);
  const answers = String(await buffer(socket));
  t.is(answers.split("HTTP/1.1 200 OK").length - 1, 1_001);
  // The end of a body may be read together with the next head.
  t.true(most <= 2, String(most));
});

test("HTTP/2 sessions are opened in turns, however many streams arrive with each", async (t) => {
  await using gateway = await openGateway();
  const sessions = 40;
  const connected = await Promise.all(
    Array.from({ length: sessions }, async () => {
      const socket = connect(gateway.socketPath);
      await once(socket, "connect");
      return socket;
    }),
  );
  // They are accepted one after the other: the one served now came last.
  const other = connect(gateway.port, "127.0.0.1");
  other.write(status);
  await nextEvent(other, "data");
  await overUnix(gateway);
  let open = 0;
  for (const socket of connected) socket.once("data", () => open++).on("error", () => undefined);
  const streams = Array.from({ length: 25 }, (_unused, index) => openStatus(index));
  for (const socket of connected) socket.write(Buffer.concat([sessionStart, ...streams]));
  other.write(status);
  await nextEvent(other, "data");
  t.log(`${open} of ${sessions} sessions were open`);
  t.true(open < sessions / 2);
  // No session is lost.
  await eventually(() => assert.equal(open, sessions));
  for (const socket of [...connected, other]) socket.destroy();
});

const status = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

async function overUnix(gateway: TestGateway): Promise<void> {
  const socket = connect(gateway.socketPath);
  socket.write(status);
  await nextEvent(socket, "data");
  socket.destroy();
}
