/** Sockets of the host: listening ones, their holders, and those of an app. */
import { fork } from "node:child_process";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { openSync, closeSync, readdirSync } from "node:fs";
import { createConnection, createServer, type Server } from "node:net";
import { fileURLToPath } from "node:url";
import test from "ava";
import type { HostThread } from "../../src/host/processes/host-thread.ts";
import type { HostSocket } from "../../src/host/processes/process-questions.ts";
import { explainPortConflict } from "../../src/host/sockets/own-listeners.ts";
import { createSocketDiagnosis } from "../../src/host/sockets/socket-diagnosis.ts";
import { readSocketAt, SocketHolders } from "../../src/host/sockets/socket-holders.ts";
import { createSocketReader } from "../../src/host/sockets/socket-reader.ts";
import type { WaitingSocket } from "../../src/host/sockets/waiting-socket.ts";
import { nextEvent } from "../support/eventually.ts";

// Listening sockets from the kernel's netlink interface and from its tables: real ones of each kind.

const uid = process.getuid?.() ?? 0;

async function listen(address: string): Promise<{ port: number } & AsyncDisposable> {
  const server = createServer().listen(0, address);
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  return {
    port,
    [Symbol.asyncDispose]: () => new Promise((resolve) => void server.close(() => resolve())),
  };
}

async function bind(
  type: "udp4" | "udp6",
  address: string,
): Promise<{ socket: Socket; port: number } & Disposable> {
  const socket = createSocket(type).bind(0, address);
  await once(socket, "listening");
  return { socket, port: socket.address().port, [Symbol.dispose]: () => void socket.close() };
}

const row = ({ protocol, address, port, uid: owner }: WaitingSocket): string =>
  `${protocol} ${address} ${port} ${owner}`;

for (const [title, createDiagnosis] of [
  ["from the kernel itself", createSocketDiagnosis],
  [
    "from its tables, where there is no native module",
    () => {
      throw new Error("koffi");
    },
  ],
  [
    "from its tables, where the kernel refuses",
    () => () => {
      throw new Error("EPERM");
    },
  ],
  [
    "from one of its tables, where the kernel refuses one kind",
    () => {
      const diagnose = createSocketDiagnosis();
      return (table) => {
        if (table.protocol === "udp") throw new Error("ENOENT");
        return diagnose(table);
      };
    },
  ],
] satisfies [string, typeof createSocketDiagnosis][]) {
  test(`only listening sockets are listed, ${title}`, async (t) => {
    const read = createSocketReader(createDiagnosis);
    await using four = await listen("127.0.0.1");
    await using any = await listen("0.0.0.0");
    await using six = await listen("::1");
    await using both = await listen("::");
    using datagrams = await bind("udp4", "127.0.0.1");
    using datagrams6 = await bind("udp6", "::1");
    using connected = await bind("udp4", "127.0.0.1");
    connected.socket.connect(datagrams.port, "127.0.0.1");
    await once(connected.socket, "connect");
    const client = createConnection(four.port, "127.0.0.1");
    using _client = { [Symbol.dispose]: () => void client.destroy() };
    await once(client, "connect");
    const rows = read();
    t.is(new Set(rows.map(({ inode }) => inode)).size, rows.length);
    const ports = new Set([four, any, six, both, datagrams, datagrams6, connected].map(({ port }) => port));
    ports.add(client.localPort ?? 0);
    const own = rows.filter(({ port, protocol }) => ports.has(port) && (protocol === "udp") === isUdp(port));
    t.deepEqual(
      own.map(row).toSorted(),
      [
        `tcp 127.0.0.1 ${four.port} ${uid}`,
        `tcp 0.0.0.0 ${any.port} ${uid}`,
        `tcp ::1 ${six.port} ${uid}`,
        `tcp :: ${both.port} ${uid}`,
        `udp 127.0.0.1 ${datagrams.port} ${uid}`,
        `udp ::1 ${datagrams6.port} ${uid}`,
      ].toSorted(),
    );

    /** A port may be used by different processes in different protocols. */
    function isUdp(port: number): boolean {
      return [datagrams, datagrams6, connected].some((each) => each.port === port);
    }
  });
}

test("thousands arrive in several parts, and none is lost", async (t) => {
  const diagnose = createSocketDiagnosis();
  await using all = new AsyncDisposableStack();
  const ports = new Set<number>();
  for (let n = 0; n < 1_500; n += 1) {
    const server = await listen("127.0.0.1");
    ports.add(server.port);
    all.use(server);
  }
  const rows = diagnose({ protocol: "tcp", version: 4 }).filter(({ port }) => ports.has(port));
  t.is(rows.length, 1_500);
});

// The holder of a socket, while sockets are passed between processes.

const taker = fileURLToPath(new URL("./support/socket-taker.mjs", import.meta.url));
const read = createSocketReader();

interface Listener extends AsyncDisposable {
  readonly server: Server;
  readonly inode: number;
  close(): Promise<void>;
}

async function listenLocally(): Promise<Listener> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const inode = read().find((row) => row.protocol === "tcp" && row.port === port)?.inode ?? 0;
  const close = async (): Promise<void> => new Promise((resolve) => void server.close(() => resolve()));
  return { server, inode, close, [Symbol.asyncDispose]: close };
}

test.serial("a socket's descriptor is distinguished from all others", async (t) => {
  await using listener = await listenLocally();
  const { inode } = listener;
  const dir = openSync("/proc/self/fd", "r");
  const found = readdirSync("/proc/self/fd").filter((fd) => readSocketAt(dir, fd) === inode);
  t.is(found.length, 1);
  t.is(readSocketAt(dir, "123456"), undefined);
  t.is(readSocketAt(dir, String(dir)), undefined);
  await listener.close();
  t.not(readSocketAt(dir, found[0] ?? ""), inode);
  closeSync(dir);
});

test.serial("a socket that another process took over belongs to that process", async (t) => {
  const holders = new SocketHolders();
  await using listener = await listenLocally();
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

test.serial("the descriptor of a closed socket is not the next one's", async (t) => {
  const holders = new SocketHolders();
  const first = await listenLocally();
  t.is(holders.of([first.inode]).get(first.inode), process.pid);
  await first.close();
  await using second = await listenLocally();
  t.deepEqual([...holders.of([first.inode])], []);
  t.deepEqual([...holders.of([first.inode, second.inode])], [[second.inode, process.pid]]);
});

test.serial("known sockets are checked individually, and all processes only for new ones", async (t) => {
  let looks = 0;
  let nowMs = 0;
  const counting = (dir: number, fd: string): number | undefined => {
    looks += 1;
    return readSocketAt(dir, fd);
  };
  const holders = new SocketHolders(counting, () => nowMs);
  await using listener = await listenLocally();
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

// Whether a listener belongs to the app, from the kernel's tables.

const own = { pid: 10, name: "web", uid: 1, appId: "web" };
const stranger = { pid: 20, name: "nc", uid: 2 };

function socket(address: string, owner: HostSocket["owner"], extra: Partial<HostSocket> = {}): HostSocket {
  return { protocol: "tcp", address, port: 80, uid: owner?.uid ?? 0, ...(owner && { owner }), ...extra };
}

for (const [title, sockets, why] of [
  ["nothing listens", [], "no process of the app listens on port 80"],
  ["only another port", [socket("0.0.0.0", own, { port: 81 })], "no process of the app listens on port 80"],
  [
    "only datagrams",
    [socket("0.0.0.0", own, { protocol: "udp" })],
    "no process of the app listens on port 80",
  ],
  ["only another address", [socket("10.0.0.1", own)], "no process of the app listens on port 80"],
  ["its own", [socket("0.0.0.0", own)], undefined],
  ["its own, over IPv6 for both", [socket("::", own)], undefined],
  ["a stranger's", [socket("127.0.0.1", stranger)], "port 80 is in use by process 20 (nc)"],
  [
    "another app's",
    [socket("127.0.0.1", { ...stranger, appId: "other" })],
    "port 80 is in use by process 20 (nc)",
  ],
  ["nobody's that can be seen", [socket("::", undefined)], "port 80 is in use by a process of root"],
  [
    "a user's that cannot be seen",
    [socket("::", undefined, { uid: 7 })],
    "port 80 is in use by a process of uid 7",
  ],
  [
    "a stranger's before its own, at the requested address",
    [socket("0.0.0.0", own), socket("127.0.0.1", stranger)],
    "port 80 is in use by process 20 (nc)",
  ],
  ["its own before a stranger's", [socket("127.0.0.1", own), socket("0.0.0.0", stranger)], undefined],
  [
    "both, who share it",
    [socket("0.0.0.0", own), socket("0.0.0.0", stranger)],
    "port 80 is in use by process 20 (nc)",
  ],
] as const) {
  test(title, async (t) => {
    const thread = { ask: async () => Promise.resolve(sockets) } as unknown as HostThread;
    t.is(await explainPortConflict(thread, "web", 80), why);
  });
}

test("unreadable tables do not count against the app", async (t) => {
  const thread = { ask: async () => Promise.reject(new Error("busy")) } as unknown as HostThread;
  t.is(await explainPortConflict(thread, "web", 80), undefined);
});
