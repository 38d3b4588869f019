/** Listening sockets from the kernel's netlink interface and from its tables: real ones of each kind. */
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { createConnection, createServer } from "node:net";
import test from "ava";
import { createSocketReader } from "../../src/host/sockets/socket-reader.ts";
import { createSocketDiagnosis } from "../../src/host/sockets/socket-diagnosis.ts";
import type { WaitingSocket } from "../../src/host/sockets/waiting-socket.ts";

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
