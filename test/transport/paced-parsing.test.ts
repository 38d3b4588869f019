/** Node gives its parser to another connection as soon as one carries HTTP no longer: nothing of that one may reach it then. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import test, { type ExecutionContext } from "ava";
import type { FairTurns } from "../../src/lib/fair-turns.ts";
import { Connection } from "../../src/transport/connection.ts";
import { parseInTurns } from "../../src/transport/paced-parsing.ts";
import { eventually } from "../support/eventually.ts";

const request = "GET / HTTP/1.1\r\n\r\n";

interface Paced {
  readonly connection: Connection;
  readonly parsed: readonly string[];
  /** What waits for its turn. */
  readonly waiting: (() => void)[];
}

/** A connection that has sent a request, which waits for its turn. */
async function pacedConnection(t: ExecutionContext): Promise<Paced> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const client = connect((listener.address() as AddressInfo).port, "127.0.0.1");
  const [socket] = (await once(listener, "connection")) as [Socket];
  t.teardown(() => {
    client.destroy();
    socket.destroy();
    listener.close();
  });
  const parsed: string[] = [];
  socket.on("data", (piece: Buffer) => void parsed.push(piece.toString()));
  const connection = new Connection(socket, { kind: "peer", uid: 1000 });
  const waiting: (() => void)[] = [];
  const turns: Pick<FairTurns, "run"> = { run: (_name, work) => void waiting.push(work) };
  parseInTurns(connection, turns as FairTurns);
  client.write(request);
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
  test(`what waits for its turn is not parsed once its connection ${what}`, async (t) => {
    const { connection, parsed, waiting } = await pacedConnection(t);
    end(connection);
    waiting.shift()?.();
    t.deepEqual(parsed, []);
  });
}

test("what waits for its turn is parsed in it", async (t) => {
  const { parsed, waiting } = await pacedConnection(t);
  t.deepEqual(parsed, []);
  waiting.shift()?.();
  t.deepEqual(parsed, [request]);
});

test("a body of declared size is parsed as it has come, and what follows it by itself", async (t) => {
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
