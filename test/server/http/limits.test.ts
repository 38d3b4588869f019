/** Limits of slow, greedy and broken clients: connections, headers, streams and wrong tokens. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as connectHttp2, constants } from "node:http2";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { ConnectError, createClient } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { createHttp2Acceptor } from "../../../src/server/http/http2-server.ts";
import { defaultTransportLimits } from "../../../src/server/http/limits.ts";
import { svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { bindHealth, HealthState } from "../../../src/server/rpc/health.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { openAndReset, sessionStart, openBadly } from "../../support/http2-frames.ts";
import { protocols, rest, transportTo } from "./support/clients.ts";
import { openGateway, type TestGateway } from "./support/gateway.ts";
import { fakeServices } from "./support/fake-services.ts";

// Slow, greedy and broken clients.

/** Opens a connection, sends `text` and resolves with the received text when the server closes it. */
async function closedBy(gateway: TestGateway, text: string | Buffer): Promise<string> {
  const socket = connect(gateway.port, "127.0.0.1");
  let answer = "";
  socket.on("data", (chunk) => (answer += chunk.toString("latin1")));
  socket.on("error", () => undefined);
  if (text.length > 0) socket.write(text);
  await untilClosed(socket);
  return answer;
}

/** `once` would fail on a reset. */
function untilClosed(connection: NodeJS.EventEmitter): Promise<void> {
  return new Promise((resolve) => connection.once("close", () => resolve()));
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

for (const [name, bytes] of [
  ["says nothing", ""],
  ["stops within HTTP/2's first word", "PR"],
  ["stops within HTTP/2's preface", "PRI * HT"],
  ["says HTTP/2 and nothing more", `${preface}\0\0\0\u0004\0\0\0\0\0`],
  ["stops within its headers", "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX-A"],
] as const) {
  test.serial(`a connection that ${name} is closed in time`, async (t) => {
    await using gateway = await openGateway({
      limits: { firstBytesTimeoutMs: 200, headersTimeoutMs: 400, idleTimeoutMs: 500 },
    });
    const startMs = performance.now();
    await closedBy(gateway, Buffer.from(bytes, "latin1"));
    t.true(performance.now() - startMs < 5000);
    t.is((await rest(gateway, "/v1/status")).status, 200);
  });
}

test.serial("headers that arrive slowly are cut off, however they are split", async (t) => {
  await using gateway = await openGateway({ limits: { headersTimeoutMs: 400 } });
  const socket = connect(gateway.port, "127.0.0.1");
  socket.on("error", () => undefined);
  socket.write("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n");
  const drip = setInterval(() => socket.write("X-A: b\r\n"), 50);
  const [text] = (await nextEvent(socket, "data")) as [Buffer];
  clearInterval(drip);
  t.regex(text.toString(), /^HTTP\/1\.1 408 /);
});

test.serial("a kept-alive connection without a request is closed", async (t) => {
  await using gateway = await openGateway({ limits: { keepAliveTimeoutMs: 200 } });
  const answer = await closedBy(gateway, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  t.regex(answer, /^HTTP\/1\.1 200 /);
});

test.serial("a handler may take longer than a connection may idle", async (t) => {
  await using gateway = await openGateway({
    limits: { idleTimeoutMs: 100, keepAliveTimeoutMs: 100, headersTimeoutMs: 100 },
    handlers: {
      app: {
        startApp: ({ id }) => new Promise((resolve) => setTimeout(() => resolve({ id }), 800)),
      },
    },
  });
  t.is((await rest(gateway, "/v1/apps/hello/start", { method: "POST" })).status, 200);
  for (const protocol of ["Connect/h1", "gRPC/h2c"] as const) {
    const client = createClient(AppService, transportTo(gateway, protocol, "TCP"));
    t.is((await client.startApp({ id: "hello" })).id, "hello");
  }
});

test.serial("connections above the limits are closed at accept; others continue", async (t) => {
  await using gateway = await openGateway({
    limits: { maxConnectionsPerPeer: 5, firstBytesTimeoutMs: 60_000 },
  });
  const sockets = Array.from({ length: 12 }, () => connect(gateway.port, "127.0.0.1"));
  let closed = 0;
  for (const socket of sockets) socket.on("error", () => undefined).on("close", () => closed++);
  await eventually(() => assert.equal(closed, 7));
  t.is((await rest(gateway, "/v1/status", { listener: "unix" })).status, 200);
  for (const socket of sockets) socket.destroy();
  // The slots are free again.
  await eventually(async () => assert.equal((await rest(gateway, "/v1/status")).status, 200));
  t.pass();
});

test.serial("a flood of resets closes its session, while another client is served", async (t) => {
  await using gateway = await openGateway({ limits: { resetBudget: 50, resetRefillPerSec: 1 } });
  const session = connectHttp2(gateway.url);
  session.on("error", () => undefined);
  const ended = untilClosed(session);
  let opened = 0;
  let slowestMs = 0;
  const isOpen = (): boolean => !session.destroyed && !session.closed;
  while (isOpen() && opened < 100_000) {
    for (let n = 0; n < 50 && isOpen(); n++) {
      const stream = session.request({ ":path": "/v1/status", authorization: `Bearer ${gateway.token}` });
      stream.on("error", () => undefined);
      stream.close(constants.NGHTTP2_CANCEL);
      opened++;
    }
    const startMs = performance.now();
    t.is((await rest(gateway, "/v1/status", { listener: "unix" })).status, 200);
    slowestMs = Math.max(slowestMs, performance.now() - startMs);
  }
  await ended;
  const errors = gateway.lines.filter(({ level }) => level === "error");
  t.deepEqual(errors, [], "streams that are already closed are not errors of the daemon");
  t.log(
    `closed after ${opened} resets; the other client's slowest response took ${Math.round(slowestMs)} ms`,
  );
  t.true(opened < 1000, String(opened));
});

test.serial("resets that arrive in one read use no more streams than the budget", async (t) => {
  let streams = 0;
  const limits = { ...defaultTransportLimits, resetBudget: 50, resetRefillPerSec: 1 };
  const front = createHttp2Acceptor(limits, (_request, response) => response.end());
  front.server.on("stream", () => streams++);
  const server = createServer((socket) => front.server.emit("connection", socket)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.on("error", () => undefined);
  const ended = untilClosed(socket);
  socket.resume();
  socket.write(
    Buffer.concat([sessionStart, ...Array.from({ length: 1500 }, (_unused, n) => openAndReset(n))]),
  );
  await ended;
  server.close();
  t.true(streams >= 50 && streams < 100, String(streams));
});

test.serial("a session has at most its limit of concurrent streams", async (t) => {
  await using gateway = await openGateway({ limits: { maxStreamsPerSession: 7 } });
  const session = connectHttp2(gateway.url);
  const settings = await new Promise<{ maxConcurrentStreams?: number }>((resolve) =>
    session.once("remoteSettings", resolve),
  );
  t.is(settings.maxConcurrentStreams, 7);
  session.close();
});

test.serial(
  "calls above the limit of a session are rejected one by one, and the session continues",
  async (t) => {
    await using gateway = await openGateway({ limits: { maxStreamsPerSession: 7 } });
    // As a client that has not read the limit yet.
    const session = connectHttp2(gateway.url, { peerMaxConcurrentStreams: 150 });
    const headers = { ":path": "/v1/status", authorization: `Bearer ${gateway.token}` };
    const codes = Array.from({ length: 150 }, async () => {
      const stream = session.request(headers).resume();
      stream.on("error", () => undefined);
      await untilClosed(stream);
      return stream.rstCode;
    });
    const { NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM } = constants;
    t.deepEqual(new Set(await Promise.all(codes)), new Set([NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM]));
    const [answer] = (await nextEvent(session.request(headers).resume(), "response")) as [
      { ":status": number },
    ];
    t.is(answer[":status"], 200);
    session.close();
  },
);

for (const [name, bytes] of [
  ["garbage", Buffer.from(Array.from({ length: 4096 }, (_unused, n) => (n * 97 + 131) % 256))],
  [
    "a bad frame",
    Buffer.concat([Buffer.from(preface), Buffer.from("ffffff0900ffffffff", "hex"), Buffer.alloc(1000, 0xff)]),
  ],
  [
    "a DATA frame on stream 0",
    Buffer.concat([
      Buffer.from(preface),
      Buffer.from("000000040000000000", "hex"),
      Buffer.from("000001000000000000", "hex"),
      Buffer.from("x"),
    ]),
  ],
  [
    "a header of __proto__",
    Buffer.from(
      "GET /healthz HTTP/1.1\r\nHost: localhost\r\n__proto__: x\r\nconstructor: y\r\nConnection: close\r\n\r\n",
    ),
  ],
  [
    "two lengths",
    Buffer.from(
      "POST /v1/apps HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    ),
  ],
  [
    "length and chunks",
    Buffer.from(
      "POST /v1/apps HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
  ],
  ["headers without end", Buffer.from(`GET / HTTP/1.1\r\nX: ${"y".repeat(70_000)}`)],
  ["no host", Buffer.from("GET /healthz HTTP/1.1\r\n\r\n")],
] as const) {
  test.serial(`${name}: the daemon keeps running`, async (t) => {
    await using gateway = await openGateway({ limits: { headersTimeoutMs: 500, idleTimeoutMs: 500 } });
    await closedBy(gateway, bytes);
    t.is((await rest(gateway, "/v1/status")).status, 200);
  });
}

test.serial("resets at any point do not stop the daemon", async (t) => {
  await using gateway = await openGateway();
  const cut = async (bytes: string, path: string | undefined): Promise<void> => {
    const socket: Socket = path === undefined ? connect(gateway.port, "127.0.0.1") : connect(path);
    socket.on("error", () => undefined);
    await once(socket, "connect");
    socket.write(bytes);
    socket.resetAndDestroy();
  };
  const head = `POST /v1/apps/x/start HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${gateway.token}\r\n`;
  for (const bytes of [
    "P",
    "PR",
    "PRI * HTTP/2.0\r\n",
    preface,
    "GET",
    head,
    `${head}\r\n`,
    `${head}Content-Length: 9\r\n\r\nx`,
  ]) {
    for (let n = 0; n < 20; n++) await cut(bytes, undefined);
  }
  t.is((await rest(gateway, "/v1/status")).status, 200);
});

test.serial("a message that decompresses above the limit is rejected without being buffered", async (t) => {
  await using gateway = await openGateway();
  const bomb = await promisify(gzip)(Buffer.alloc(128 * 1024 * 1024, " "));
  const before = process.memoryUsage().rss;
  const { status, json } = await rest(gateway, "/svc.v1.AppService/StartApp", {
    method: "POST",
    body: bomb,
    headers: { "content-encoding": "gzip" },
  });
  t.deepEqual([status, json.code], [429, "resource_exhausted"]);
  const grownMiB = (process.memoryUsage().rss - before) / 1024 / 1024;
  t.log(`grew by ${Math.round(grownMiB)} MiB`);
  t.true(grownMiB < 100);
});

test.serial("a large gRPC message is resource_exhausted", async (t) => {
  await using gateway = await openGateway({ limits: { maxMessageBytes: 1000 } });
  const client = createClient(AppService, transportTo(gateway, "Connect/h1", "TCP"));
  const error = await t.throwsAsync(client.startApp({ id: "x".repeat(5000) }), { instanceOf: ConnectError });
  t.is(svcErrorOf(error).code, "resource_exhausted");
});

test.serial("many wrong tokens cost the connection; the right one is always accepted", async (t) => {
  await using gateway = await openGateway();
  const statuses: number[] = [];
  for (let n = 0; n < 40; n++)
    statuses.push((await rest(gateway, "/v1/status", { token: `svcp_${n}` })).status);
  t.is(statuses[0], 401);
  t.is(statuses.at(-1), 429);
  t.is((await rest(gateway, "/v1/status")).status, 200);
});

test.serial("a deadline ends a call that ignores it", async (t) => {
  await using gateway = await openGateway({
    handlers: { app: { startApp: () => new Promise(() => undefined) } },
  });
  for (const protocol of ["Connect/h1", "gRPC/h2c", "gRPC-Web/h1"] as const) {
    const client = createClient(AppService, transportTo(gateway, protocol, "TCP"));
    const error = await t.throwsAsync(client.startApp({ id: "x" }, { timeoutMs: 100 }), {
      instanceOf: ConnectError,
    });
    t.is(svcErrorOf(error).code, "deadline_exceeded", protocol);
  }
});

for (const protocol of protocols) {
  test.serial(`${protocol}: a deadline above the maximum is rejected before any handler`, async (t) => {
    let calls = 0;
    await using gateway = await openGateway({
      limits: { maxTimeoutMs: 60_000 },
      handlers: {
        app: {
          startApp: ({ id }) => {
            calls++;
            return { id };
          },
          async *streamAppLogs() {
            calls++;
            await Promise.resolve();
            yield { lines: [] };
          },
        },
      },
    });
    const client = createClient(AppService, transportTo(gateway, protocol, "TCP"));
    t.is((await client.startApp({ id: "x" }, { timeoutMs: 60_000 })).id, "x");
    const tooLong = { timeoutMs: 60_001 };
    const tries = [
      () => client.startApp({ id: "x" }, tooLong),
      async () => {
        for await (const _lines of client.streamAppLogs({ id: "x" }, tooLong));
      },
    ];
    for (const attempt of tries) {
      const error = svcErrorOf(await t.throwsAsync(attempt, { instanceOf: ConnectError }));
      t.deepEqual([error.code, error.reason], ["invalid_argument", "invalid_request"]);
      t.regex(error.message, /60000/);
    }
    t.is(calls, 1);
  });
}

const publicServices = () => [...fakeServices(), bindHealth(new HealthState([]))];

/** Calls of a public method over one session; their bodies never end. */
async function holdPublicCalls(gateway: TestGateway, count: number) {
  const session = connectHttp2(gateway.url).on("error", () => undefined);
  await nextEvent(session, "remoteSettings");
  const calls = Array.from({ length: count }, () => {
    const call = session.request({
      ":method": "POST",
      ":path": "/grpc.health.v1.Health/Check",
      "content-type": "application/grpc",
    });
    call.on("error", () => undefined).write(Buffer.alloc(1));
    return call;
  });
  await new Promise((resolve) => session.ping(resolve));
  return { session, calls };
}

test.serial(
  "unfinished public calls of one connection do not reduce the public requests of others",
  async (t) => {
    await using gateway = await openGateway({
      services: publicServices(),
      limits: { maxRequestsPerUser: 20 },
    });
    const other = await holdPublicCalls(gateway, 2);
    const greedy = await holdPublicCalls(gateway, 18);
    t.is((await fetch(`${gateway.url}/healthz`)).status, 200);
    await eventually(() => assert.ok(greedy.session.destroyed));
    t.false(other.session.destroyed);
    other.session.destroy();
  },
);

test.serial("a public call whose body stalls ends within seconds", async (t) => {
  t.timeout(30_000);
  await using gateway = await openGateway({ services: publicServices() });
  const { session, calls } = await holdPublicCalls(gateway, 1);
  const startMs = performance.now();
  await Promise.all(calls.map(untilClosed));
  const tookMs = performance.now() - startMs;
  t.true(tookMs > 3_000 && tookMs < 15_000, `${tookMs} ms`);
  session.destroy();
});

// Limits of a request's headers, over both versions of HTTP.

const headerLimits = { maxHeaderBytes: 2048, maxHeaderCount: 20 };

/** Empty headers. */
function many(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_unused, n) => [`x-${n}`, "y"]));
}

/** The status of a `GET /v1/status` over HTTP/2, or the code of its stream's reset. */
async function getOverHttp2(
  gateway: TestGateway,
  headers: Record<string, string>,
): Promise<{ status?: number; reset?: number }> {
  const session = connectHttp2(gateway.url);
  // Frames are counted from here on.
  await nextEvent(session, "remoteSettings");
  return new Promise((resolve) => {
    const authorization = `Bearer ${gateway.token}`;
    const stream = session.request({ ":path": "/v1/status", authorization, ...headers });
    stream.on("response", (received) => resolve({ status: Number(received[":status"]) }));
    stream.on("error", () => undefined);
    stream.on("close", () => {
      resolve({ reset: stream.rstCode });
      session.close();
    });
    stream.resume();
  });
}

test("HTTP/1.1: headers above the size limit are 431", async (t) => {
  await using gateway = await openGateway({ limits: headerLimits });
  t.is((await rest(gateway, "/v1/status", { headers: { "x-a": "y".repeat(1000) } })).status, 200);
  t.is((await rest(gateway, "/v1/status", { headers: { "x-a": "y".repeat(3000) } })).status, 431);
});

test("HTTP/1.1: headers above the count limit are 431", async (t) => {
  await using gateway = await openGateway({ limits: headerLimits });
  t.is((await rest(gateway, "/v1/status", { headers: many(10) })).status, 200);
  t.is((await rest(gateway, "/v1/status", { headers: many(30) })).status, 431);
});

for (const [name, headers] of [
  ["the bytes", { "x-a": "y".repeat(3000) }],
  ["the number", many(30)],
] as const) {
  test(`HTTP/2: a stream with headers above ${name} is reset`, async (t) => {
    await using gateway = await openGateway({ limits: headerLimits });
    t.deepEqual(await getOverHttp2(gateway, { "x-a": "y".repeat(1000), ...many(10) }), { status: 200 });
    t.deepEqual(await getOverHttp2(gateway, headers), { reset: constants.NGHTTP2_ENHANCE_YOUR_CALM });
  });
}

test("HTTP/2: a session that keeps sending invalid requests is closed", async (t) => {
  await using gateway = await openGateway({ limits: { headersTimeoutMs: 60_000 } });
  const socket = connect(gateway.port, "127.0.0.1");
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.on("error", () => undefined).resume();
  socket.write(sessionStart);
  let sent = 0;
  while (!socket.destroyed && sent < 2_000) {
    socket.write(openBadly(sent++));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  t.true(sent < 1_100, String(sent));
  await closed;
  t.is((await rest(gateway, "/v1/status")).status, 200);
});

// Guessing tokens is slow, and affects nobody else.

for (const protocol of protocols) {
  test(`${protocol}: many wrong tokens are slowed down, and the right one is always accepted`, async (t) => {
    await using gateway = await openGateway({
      limits: { tokenFailureBudget: 3, tokenFailureRefillPerSec: 1 },
    });
    const codes: number[] = [];
    for (let n = 0; n < 6; n++) {
      const client = createClient(
        DaemonService,
        transportTo(gateway, protocol, "TCP", { token: "svcp_wrong" }),
      );
      const error = await t.throwsAsync(client.getStatus({}), { instanceOf: ConnectError });
      codes.push(error.code);
    }
    // unauthenticated, then resource_exhausted
    t.deepEqual([codes[0], codes.at(-1)], [16, 8]);
    const { version } = await createClient(DaemonService, transportTo(gateway, protocol, "TCP")).getStatus(
      {},
    );
    t.is(version, "primary");
  });
}

const tokenLimits = { tokenFailureBudget: 1, tokenFailureRefillPerSec: 1 };

test("HTTP/1.1: above the budget a wrong token costs its connection", async (t) => {
  await using gateway = await openGateway({ limits: tokenLimits });
  const socket = connect(gateway.port, "127.0.0.1");
  let answers = "";
  socket.on("data", (chunk: Buffer) => {
    answers += chunk.toString();
    // A request on a closing connection gets no response.
    if (answers.match(/HTTP\/1\.1 /g)?.length === 1) socket.write(request);
  });
  const request = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer svcp_wrong\r\n\r\n";
  socket.write(request);
  await nextEvent(socket, "close");
  t.deepEqual(
    Array.from(answers.matchAll(/HTTP\/1\.1 (\d+)/g), (match) => match[1]),
    ["401", "429"],
  );
});

test("HTTP/2: above the budget a wrong token costs its session", async (t) => {
  t.timeout(20_000);
  await using gateway = await openGateway({ limits: tokenLimits });
  const session = connectHttp2(gateway.url);
  const closed = once(session, "close");
  const ask = async (): Promise<number> => {
    const stream = session.request({ ":path": "/v1/status", authorization: "Bearer svcp_wrong" });
    const [headers] = (await nextEvent(stream, "response")) as [Record<string, unknown>];
    await buffer(stream);
    return Number(headers[":status"]);
  };
  t.is(await ask(), 401);
  t.false(session.closed);
  t.is(await ask(), 429);
  await closed;
  t.true(session.destroyed);
});
