/** Answers that nobody reads lie in memory: of one user so much, and no more (T 57). */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import test, { type ExecutionContext } from "ava";
import { openDoor } from "./support/door.ts";

/** Some 4 MB: of a user's there is room for sixteen. */
const apps = Array.from({ length: 400 }, (_, n) => ({ id: `app-${n}`, name: "x".repeat(10_000) }));
const connections = 40;

/** How many of the connections that read nothing are left, once all have their answer. */
async function heldBy(t: ExecutionContext, uid: number): Promise<number> {
  const door = await openDoor({
    loadPeerUid: () => () => uid,
    handlers: {
      app: {
        listApps: () => ({ apps }),
      },
    },
  });
  t.teardown(() => door[Symbol.asyncDispose]());
  const sockets = await Promise.all(Array.from({ length: connections }, () => ask(door.socketPath)));
  t.teardown(() => sockets.forEach((socket) => socket.destroy()));
  // Each has the beginning of its answer, or its end.
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
  if (!socket.destroyed) await once(socket, "close");
  return bytes > 4_000_000;
}

test("a user who reads nothing has some 64 MiB of answers, and loses the connections beyond", async (t) => {
  t.timeout(120_000);
  const held = await heldBy(t, 4001);
  t.true(held > 4 && held < 20, `${held} of ${connections}`);
});

test("root has no such bound", async (t) => {
  t.timeout(120_000);
  t.is(await heldBy(t, 0), connections);
});
