/** Who connects anew is let in in a turn of their own, however many of somebody else's came before (T 56, 57). */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { FairTurns } from "../../src/lib/fair-turns.ts";
import { Arrivals, type ArrivalsOptions } from "../../src/transport/arrivals.ts";
import { eventually } from "../support/eventually.ts";
import { rest } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";

const [flooder, newcomer] = [1, 2];

test("somebody new waits for few turns of the loop behind a thousand of another user's", async (t) => {
  t.timeout(60_000);
  const held = 1_000;
  let asked = 0;
  await using door = await openDoor({
    loadPeerUid: () => () => {
      return asked++ < held ? flooder : newcomer;
    },
  });
  // The kernel has all of them in its queue before the loop turns once.
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
  readonly arrivals: Arrivals;
  readonly clients: readonly Socket[];
  readonly letIn: Socket[];
}

/** Twenty of one user at a socket, whose turns have no room for a second connection. */
async function gather(t: ExecutionContext, options: Partial<ArrivalsOptions> = {}): Promise<Crowd> {
  const directory = await mkdtemp(join(tmpdir(), "svc-arrivals-"));
  const letIn: Socket[] = [];
  let nowMs = 0;
  const arrivals = new Arrivals({
    turns: new FairTurns(() => (nowMs += 10)),
    readPeerUid: () => flooder,
    maxWaitingPerPeer: 5,
    hasRoomFor: () => true,
    ...options,
    log: { warn: () => undefined },
    onPeer: (socket) => letIn.push(socket),
  });
  const server: Server = createServer((socket) => {
    letIn.push(socket);
    // As somebody's work that was done in this turn.
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
  await once(server, "connection");
  return { arrivals, clients, letIn };
}

test("more than may wait of one user are turned away", async (t) => {
  t.timeout(60_000);
  const { arrivals, clients, letIn } = await gather(t);
  t.is(arrivals.size, 5);
  await eventually(() => assert.deepEqual([letIn.length, arrivals.size], [7, 0]));
  await eventually(() => assert.equal(clients.filter(({ destroyed }) => destroyed).length, 13));
});

test("who still waits is turned away when the doors close for good", async (t) => {
  t.timeout(60_000);
  const { arrivals, clients, letIn } = await gather(t);
  arrivals.close();
  t.is(arrivals.size, 0);
  await eventually(() => assert.equal(clients.filter(({ destroyed }) => destroyed).length, 18));
  t.is(letIn.length, 2);
});

test("who finds no room is let in when there is some", async (t) => {
  t.timeout(60_000);
  let room = 0;
  const { arrivals, letIn } = await gather(t, { hasRoomFor: () => room > 0 && room-- > 0 });
  await eventually(() => assert.deepEqual([letIn.length, arrivals.size], [1, 5]));
  room = 4;
  await eventually(() => assert.deepEqual([letIn.length, arrivals.size], [5, 1]));
  t.is(room, 0);
});

test("who finds no room is turned away in the end", async (t) => {
  t.timeout(60_000);
  const { arrivals, clients, letIn } = await gather(t, { hasRoomFor: () => false, maxHeldMs: 100 });
  await eventually(() => assert.equal(clients.filter(({ destroyed }) => destroyed).length, 19));
  t.deepEqual([letIn.length, arrivals.size], [1, 0]);
});
