/** The holder of a socket, while sockets are passed between processes. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { openSync, closeSync, readdirSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { fileURLToPath } from "node:url";
import test from "ava";
import { createSocketAt, plainSocketAt, type SocketAt } from "../../src/host/sockets/descriptor-links.ts";
import { SocketHolders } from "../../src/host/sockets/socket-holders.ts";
import { createSocketReader } from "../../src/host/sockets/socket-reader.ts";
import { nextEvent } from "../support/eventually.ts";

const taker = fileURLToPath(new URL("./support/socket-taker.mjs", import.meta.url));
const read = createSocketReader();

interface Listener extends AsyncDisposable {
  readonly server: Server;
  readonly inode: number;
  close(): Promise<void>;
}

async function listen(): Promise<Listener> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const inode = read().find((row) => row.protocol === "tcp" && row.port === port)?.inode ?? 0;
  const close = async (): Promise<void> => new Promise((resolve) => void server.close(() => resolve()));
  return { server, inode, close, [Symbol.asyncDispose]: close };
}

for (const [title, socketAt] of [
  ["by a native call", createSocketAt()],
  ["by node's own", plainSocketAt],
] as const) {
  test.serial(`a socket's descriptor is distinguished from all others, ${title}`, async (t) => {
    await using listener = await listen();
    const { inode } = listener;
    const dir = openSync("/proc/self/fd", "r");
    const found = readdirSync("/proc/self/fd").filter((fd) => socketAt(dir, fd) === inode);
    t.is(found.length, 1);
    t.is(socketAt(dir, "123456"), undefined);
    t.is(socketAt(dir, String(dir)), undefined);
    await listener.close();
    t.not(socketAt(dir, found[0] ?? ""), inode);
    closeSync(dir);
  });

  test.serial(`a socket that another process took over belongs to that process, ${title}`, async (t) => {
    const holders = new SocketHolders(socketAt);
    await using listener = await listen();
    const { inode } = listener;
    t.is(holders.of([inode]).get(inode), process.pid);
    const child = fork(taker, { execArgv: [] });
    try {
      child.send("take", listener.server);
      await nextEvent(child, "message");
      await listener.close();
      t.is(holders.of([inode]).get(inode), child.pid);
    } finally {
      child.kill("SIGKILL");
      await nextEvent(child, "exit");
    }
    t.false(holders.of([inode]).has(inode));
  });

  test.serial(`the descriptor of a closed socket is not the next one's, ${title}`, async (t) => {
    const holders = new SocketHolders(socketAt);
    const first = await listen();
    t.is(holders.of([first.inode]).get(first.inode), process.pid);
    await first.close();
    await using second = await listen();
    t.deepEqual([...holders.of([first.inode])], []);
    t.deepEqual([...holders.of([first.inode, second.inode])], [[second.inode, process.pid]]);
  });
}

test.serial("known sockets are checked individually, and all processes only for new ones", async (t) => {
  let looks = 0;
  let nowMs = 0;
  const native = createSocketAt();
  const counting: SocketAt = (dir, fd) => {
    looks += 1;
    return native(dir, fd);
  };
  const holders = new SocketHolders(counting, () => nowMs);
  await using listener = await listen();
  const { inode } = listener;
  const nobodys = 1;
  const looksFor = (...inodes: number[]): number => {
    const before = looks;
    t.is(holders.of(inodes).get(inode), process.pid);
    return looks - before;
  };
  t.true(looksFor(inode, nobodys) > 3);
  t.is(looksFor(inode, nobodys), 1);
  // A socket without a holder may have been in transit between processes.
  nowMs = 11_000;
  t.true(looksFor(inode, nobodys) > 3);
  t.is(looksFor(inode, nobodys), 1);
});
