/**
 * Node gives its parser to another connection as soon as one stops using HTTP: no pending bytes of the old one may
 * reach it then.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import test, { type ExecutionContext } from "ava";
import type { FairQueue } from "../../../src/lib/fair-queue.ts";
import type { Origin } from "../../../src/server/http/caller-identity.ts";
import { Connection } from "../../../src/server/http/connection.ts";
import { parseFairly } from "../../../src/server/http/paced-parsing.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";

const request = "GET / HTTP/1.1\r\n\r\n";

interface Paced {
  readonly connection: Connection;
  readonly parsed: readonly string[];
  /** Pending bytes. */
  readonly waiting: (() => void)[];
}

/** A connection that has sent `sent`. On the socket its first piece waits for a turn; over TCP it is parsed at once. */
async function pacedConnection(
  t: ExecutionContext,
  { origin = { kind: "peer", uid: 1000 }, sent = request }: { origin?: Origin; sent?: string } = {},
): Promise<Paced> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const client = connect((listener.address() as AddressInfo).port, "127.0.0.1");
  const [socket] = (await nextEvent(listener, "connection")) as [Socket];
  t.teardown(() => {
    client.destroy();
    socket.destroy();
    listener.close();
  });
  const parsed: string[] = [];
  socket.on("data", (piece: Buffer) => void parsed.push(piece.toString()));
  const connection = new Connection(socket, origin);
  const waiting: (() => void)[] = [];
  const turns: Pick<FairQueue, "run"> = { run: (_name, work) => void waiting.push(work) };
  parseFairly(connection, turns as FairQueue);
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
