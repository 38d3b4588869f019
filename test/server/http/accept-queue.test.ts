/** A new connection is accepted in its user's own queue, however many connections of other users came before. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { FairQueue } from "../../../src/lib/fair-queue.ts";
import { AcceptQueue, type AcceptQueueOptions } from "../../../src/server/http/accept-queue.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { rest } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";

const [flooder, newcomer] = [1, 2];

test("a new client waits only a few event-loop turns behind a thousand connections of another user", async (t) => {
  t.timeout(60_000);
  const held = 1_000;
  let asked = 0;
  await using door = await openDoor({
    loadPeerUid: () => () => {
      return asked++ < held ? flooder : newcomer;
    },
  });
  // The kernel has queued all of them before the first turn of the event loop.
  const sockets = Array.from({ length: held }, () => connect(door.socketPath).on("error", () => undefined));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
  });
  let turns = 0;
  const answer = rest(door, "/v1/status", { listener: "unix" });
  const counting = new AbortController();
  const answered = answer.finally(() => counting.abort());
  while (!counting.signal.aborted) {
    turns++;
    await turn();
  }
  t.like(await answered, { status: 200, json: { hostname: String(newcomer) } });
  t.true(turns < held / 2, `${turns} turns`);
});

interface Crowd {
  readonly arrivals: AcceptQueue;
  readonly clients: readonly Socket[];
  readonly letIn: Socket[];
}

/** Twenty connections of one user at a socket, whose turns fit only one connection each. */
async function gather(t: ExecutionContext, options: Partial<AcceptQueueOptions> = {}): Promise<Crowd> {
  const directory = await mkdtemp(join(tmpdir(), "svc-arrivals-"));
  const letIn: Socket[] = [];
  let nowMs = 0;
  const arrivals = new AcceptQueue({
    fairQueue: new FairQueue(() => (nowMs += 10)),
    readPeerUid: () => flooder,
    maxWaitingPerPeer: 5,
    hasSlotFor: () => true,
    ...options,
    log: { warn: () => undefined },
    onPeer: (socket) => letIn.push(socket),
  });
  const server: Server = createServer((socket) => {
    letIn.push(socket);
    // As a request of another client that was handled in this turn.
    arrivals.acceptMore(server);
  });
  server.listen(join(directory, "svc.sock"));
  await once(server, "listening");
  const clients = Array.from({ length: 20 }, () =>
    connect(join(directory, "svc.sock"))
      .on("error", () => undefined)
      .resume(),
  );
  t.teardown(async () => {
    server.close();
    for (const socket of [...clients, ...letIn]) socket.destroy();
    await rm(directory, { recursive: true, force: true });
  });
  await nextEvent(server, "connection");
  return { arrivals, clients, letIn };
}

test("connections beyond a user's queue limit are rejected", async (t) => {
  t.timeout(60_000);
  const { arrivals, clients, letIn } = await gather(t);
  t.is(arrivals.size, 5);
  await eventually(() => assert.deepEqual([letIn.length, arrivals.size], [7, 0]));
  await eventually(() => assert.equal(clients.filter(({ destroyed }) => destroyed).length, 13));
});

test("pending connections are rejected when the listener closes", async (t) => {
  t.timeout(60_000);
  const { arrivals, clients, letIn } = await gather(t);
  arrivals.close();
  t.is(arrivals.size, 0);
  await eventually(() => assert.equal(clients.filter(({ destroyed }) => destroyed).length, 18));
  t.is(letIn.length, 2);
});

test("a connection without a free slot is accepted when one is free", async (t) => {
  t.timeout(60_000);
  let room = 0;
  const { arrivals, letIn } = await gather(t, { hasSlotFor: () => room > 0 && room-- > 0 });
  await eventually(() => assert.deepEqual([letIn.length, arrivals.size], [1, 5]));
  room = 4;
  await eventually(() => assert.deepEqual([letIn.length, arrivals.size], [5, 1]));
  t.is(room, 0);
});

test("a connection that never gets a slot is rejected at last", async (t) => {
  t.timeout(60_000);
  const { arrivals, clients, letIn } = await gather(t, { hasSlotFor: () => false, maxHeldMs: 100 });
  await eventually(() => assert.equal(clients.filter(({ destroyed }) => destroyed).length, 19));
  t.deepEqual([letIn.length, arrivals.size], [1, 0]);
});
