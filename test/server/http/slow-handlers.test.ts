/** Requests without a body whose handlers take longer than clients may: a handler may take long. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { buffer } from "node:stream/consumers";
import test from "ava";
import type { FakeHandlers } from "./support/fake-services.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { openStatus, sessionStart } from "../../support/http2-frames.ts";
import { openDoor, type Door } from "./support/door.ts";

const limits = { idleTimeoutMs: 200, requestTimeoutMs: 200 };
const slow: FakeHandlers = {
  app: {
    async startApp({ id }) {
      await delay(700);
      return { id };
    },
  },
  daemon: {
    async getStatus() {
      await delay(700);
      return { version: "slow" };
    },
  },
};

const connectGet = "/svc.v1.DaemonService/GetStatus?connect=v1&encoding=json&message=%7B%7D";
const requests = { "POST /v1/apps/a/start": "a", "GET /v1/status": "slow", [`GET ${connectGet}`]: "slow" };

async function overHttp1(door: Door, line: string): Promise<string> {
  const socket = connect(door.port, "127.0.0.1");
  socket.write(
    `${line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${door.token}\r\nConnection: close\r\n\r\n`,
  );
  return String(await buffer(socket));
}

async function overHttp2(door: Door, line: string): Promise<string> {
  const session = connectHttp2(door.url);
  const [method, path] = line.split(" ");
  const authorization = `Bearer ${door.token}`;
  const stream = session.request({ ":method": method, ":path": path, authorization }, { endStream: true });
  const body = String(await buffer(stream));
  session.destroy();
  return body;
}

for (const [line, expected] of Object.entries(requests)) {
  for (const [protocol, ask] of Object.entries({ "HTTP/1.1": overHttp1, "HTTP/2": overHttp2 })) {
    test(`${protocol}: ${line} gets its response, however long that takes`, async (t) => {
      await using door = await openDoor({ limits, handlers: slow });
      t.true((await ask(door, line)).includes(`"${expected}"`));
    });
  }
}

test("a response that cannot be sent does not delay later ones on its connection", async (t) => {
  await using door = await openDoor({
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
  const common = `Host: localhost\r\nAuthorization: Bearer ${door.token}\r\n`;
  const envelope = Buffer.from([0, 0, 0, 0, 3, 0x0a, 1, 0x78]);
  const socket = connect(door.port, "127.0.0.1");
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
        await delay(1);
        underWay--;
        return { id };
      },
    },
  };
  await using door = await openDoor({ handlers: slowStart });
  const common = `Host: localhost\r\nAuthorization: Bearer ${door.token}\r\n`;
  const start = `POST /v1/apps/a/start HTTP/1.1\r\n${common}`;
  const socket = connect(door.port, "127.0.0.1");
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
  await using door = await openDoor();
  const sessions = 40;
  const connected = await Promise.all(
    Array.from({ length: sessions }, async () => {
      const socket = connect(door.socketPath);
      await once(socket, "connect");
      return socket;
    }),
  );
  // They are accepted one after the other: the one served now came last.
  const other = connect(door.port, "127.0.0.1");
  other.write(status);
  await nextEvent(other, "data");
  await overUnix(door);
  let open = 0;
  for (const socket of connected) socket.once("data", () => open++).on("error", () => undefined);
  const streams = Array.from({ length: 25 }, (_unused, index) => openStatus(index));
  for (const socket of connected) socket.write(Buffer.concat([sessionStart, ...streams]));
  other.write(status);
  await nextEvent(other, "data");
  t.log(`${open} of ${sessions} sessions were open`);
  t.true(open < sessions / 2);
  // None is lost.
  await eventually(() => assert.equal(open, sessions));
  for (const socket of [...connected, other]) socket.destroy();
});

const status = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

async function overUnix(door: Door): Promise<void> {
  const socket = connect(door.socketPath);
  socket.write(status);
  await nextEvent(socket, "data");
  socket.destroy();
}
