/** Limits of connections, and the order in which they are accepted. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { FairQueue } from "../../../src/lib/fair-queue.ts";
import { AcceptQueue, type AcceptQueueOptions } from "../../../src/server/http/fair-shares/accept-queue.ts";
import { ConnectionLimiter } from "../../../src/server/http/fair-shares/connection-limiter.ts";
import { Connection } from "../../../src/server/http/connection.ts";
import type { HttpResponse } from "../../../src/server/rpc/http-request.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { rest } from "./support/clients.ts";
import { openGateway } from "./support/gateway.ts";

// A new connection is accepted in its user's own queue, however many connections of other users came before.

const [flooder, newcomer] = [1, 2];

test("a new client waits only a few event-loop turns behind a thousand connections of another user", async (t) => {
  t.timeout(60_000);
  const held = 1_000;
  let asked = 0;
  await using gateway = await openGateway({
    loadPeerUid: () => () => {
      return asked++ < held ? flooder : newcomer;
    },
  });
  // The kernel has queued all of them before the first turn of the event loop.
  const sockets = Array.from({ length: held }, () =>
    connect(gateway.socketPath).on("error", () => undefined),
  );
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
  });
  let turns = 0;
  const answer = rest(gateway, "/v1/status", { listener: "unix" });
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
    // Another client's request was handled in this turn.
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

// Limits of connections: in total, per peer and for root; and which connection is closed above them.

type Peer = number | string;

/** A uid on the socket, or an address on TCP. */
function from(peer: Peer): Connection {
  const connection = new Connection(
    new Socket(),
    typeof peer === "number" ? { kind: "peer", uid: peer } : { kind: "tcp", address: peer },
  );
  connection.isNew = false;
  return connection;
}

function placesOf(
  maxConnections: number,
  maxConnectionsPerPeer: number,
  maxRootConnections = 2,
): ConnectionLimiter {
  return new ConnectionLimiter({ maxConnections, maxConnectionsPerPeer, maxRootConnections });
}

function admitted(places: ConnectionLimiter, peers: readonly Peer[]): Connection[] {
  return peers.map((peer) => {
    const connection = from(peer);
    if (!places.admit(connection)) connection.socket.destroy();
    return connection;
  });
}

const open = (connections: readonly Connection[]): boolean[] =>
  connections.map(({ socket }) => !socket.destroyed);

/** A response to a complete request. */
const working = { req: { complete: true }, stream: { endAfterHeaders: true } } as unknown as HttpResponse;

test("a peer above its limit loses its longest idle connection", (t) => {
  const places = placesOf(10, 2);
  const connections = admitted(places, [1, 1, 2]);
  places.markUsed(connections[0]!);
  const [newest] = admitted(places, [1]);
  t.deepEqual(open([...connections, newest!]), [true, false, true, true]);
});

test("a peer whose connections are all active gets no more", (t) => {
  const places = placesOf(10, 2);
  const connections = admitted(places, [1, 1]);
  for (const connection of connections) connection.begin(working);
  t.false(places.admit(from(1)));
  t.true(places.admit(from(2)));
  connections[0]!.end(working);
  t.true(places.admit(from(1)));
  t.deepEqual(open(connections), [false, true]);
});

test("a connection with an unread request is not idle for its own peer", (t) => {
  const places = placesOf(10, 2);
  const connections = admitted(places, [1, 1, 0, 0]);
  connections[0]!.isNew = true;
  connections[1]!.isQueued = true;
  connections[2]!.isNew = true;
  connections[3]!.isQueued = true;
  for (const uid of [0, 1]) {
    t.false(places.hasSlotFor(uid));
    t.false(places.admit(from(uid)));
  }
  connections[1]!.isQueued = false;
  t.true(places.hasSlotFor(1));
  t.deepEqual(open(connections), [true, false, true, true]);
});

test("a connection with an unread request is idle for other peers with fewer connections", (t) => {
  const places = placesOf(2, 2);
  const connections = admitted(places, [1, 1]);
  connections[0]!.isNew = true;
  connections[1]!.isQueued = true;
  t.true(places.admit(from(2)));
  t.deepEqual(open(connections), [false, true]);
});

test("root has reserved slots, however many connections others have", (t) => {
  const places = placesOf(3, 3);
  const others = admitted(places, [1, 1, 1]);
  const roots = admitted(places, [0, 0]);
  t.deepEqual(open([...others, ...roots]), [true, true, true, true, true]);
  const [further] = admitted(places, [0]);
  t.deepEqual(open([...roots, further!]), [false, true, true]);
});

test("if all slots are in use, the peer with the most connections loses one", (t) => {
  const places = placesOf(4, 3);
  const connections = admitted(places, [1, 1, 1, 2]);
  const [newcomer] = admitted(places, [3]);
  t.deepEqual(open([...connections, newcomer!]), [false, true, true, true, true]);
  t.is(places.size, 4);
});

test("a new connection of the peer with the most connections replaces one of its own", (t) => {
  const places = placesOf(3, 3);
  const connections = admitted(places, [1, 1, 2]);
  const [newcomer] = admitted(places, [1]);
  t.deepEqual(open([...connections, newcomer!]), [false, true, true, true]);
});

test("unauthenticated connections are closed first, even if they are few and active", (t) => {
  const places = placesOf(4, 4);
  const connections = admitted(places, [1, 1, 1, "10.0.0.1"]);
  connections[3]!.begin(working);
  const [newcomer] = admitted(places, [2]);
  t.deepEqual(open([...connections, newcomer!]), [true, true, true, false, true]);
});

for (const [name, addresses, left] of [
  ["all addresses of loopback count as one", ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.9.9.9"], 2],
  ["other addresses count by themselves", ["10.0.0.1", "10.0.0.2", "::ffff:10.0.0.3", "10.0.0.4"], 4],
  [
    "a /64 of IPv6 counts as one",
    ["fd00:1:2:3::1", "fd00:1:2:3:4::", "fd00:1:2:3:4:5:6:7", "fd00:1:2:3::9"],
    2,
  ],
  ["networks of IPv6 count by themselves", ["fd00::1", "fd00:0:0:1::1", "fe80::1%eth0", "2001:db8::"], 4],
] as const) {
  test(name, (t) => {
    const connections = admitted(placesOf(10, 2), addresses);
    t.is(open(connections).filter(Boolean).length, left);
  });
}

test("a connection with a token counts for the token from then on", (t) => {
  const places = placesOf(10, 1);
  const [first] = admitted(places, ["127.0.0.1"]);
  const token = { kind: "known", name: "token a" } as const;
  t.true(places.assign(first!, token));
  const [second] = admitted(places, ["127.0.0.1"]);
  t.deepEqual(open([first!, second!]), [true, true], "loopback has its slot again");
  t.true(places.assign(second!, token));
  t.deepEqual(open([first!, second!]), [false, true], "the token has one");
});

test("a closed connection frees a slot", async (t) => {
  const places = placesOf(1, 1);
  const [connection] = admitted(places, [1]);
  connection!.begin(working);
  t.false(places.admit(from(1)));
  const closed = once(connection!.socket, "close");
  connection!.socket.destroy();
  await closed;
  t.is(places.size, 0);
  t.true(places.admit(from(1)));
});
