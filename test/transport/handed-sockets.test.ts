/** A socket that somebody else has bound and keeps: one daemon follows another on it, and nobody is refused. */
import assert from "node:assert/strict";
import { lstat, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent, request } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { takeListenFds } from "../../src/daemon/listen-fds.ts";
import { loadLibc } from "../../src/lib/libc.ts";
import { handedSockets } from "../../src/transport/handed-sockets.ts";
import { eventually } from "../support/eventually.ts";
import { openDoor } from "./support/door.ts";

interface Holder {
  readonly path: string;
  /** A descriptor for one daemon. */
  hand(): number;
}

/** As systemd has one. */
async function hold(t: ExecutionContext): Promise<Holder> {
  const directory = await mkdtemp(join(tmpdir(), "svc-held-"));
  const path = join(directory, "svc.sock");
  const libc = loadLibc();
  const call = (declaration: string, ...args: unknown[]): number => {
    const result = (libc.func(declaration) as (...args: unknown[]) => number)(...args);
    if (result < 0) throw new Error(`${declaration} failed`);
    return result;
  };
  const address = Buffer.alloc(110);
  new Uint16Array(address.buffer, address.byteOffset, 1)[0] = 1;
  address.write(path, 2);
  const fd = call("int socket(int family, int type, int protocol)", 1, 1, 0);
  call("int bind(int fd, uint8_t *address, uint32_t length)", fd, address, address.length);
  call("int listen(int fd, int backlog)", fd, 4096);
  t.teardown(async () => {
    call("int close(int fd)", fd);
    await rm(directory, { recursive: true, force: true });
  });
  return { path, hand: () => call("int dup(int fd)", fd) };
}

const asRoot = () => () => 0;

/** The status of the answer; nothing where there is none. */
async function askOn(socket: Socket): Promise<string | undefined> {
  socket.write("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  let answer = "";
  socket.setEncoding("utf8").on("data", (text: string) => (answer += text));
  socket.on("error", () => undefined);
  await new Promise((resolve) => socket.once("close", resolve));
  return answer.split(" ", 2)[1];
}

async function askByHttp2On(socket: Socket): Promise<string | undefined> {
  const session = connectHttp2("http://localhost", { createConnection: () => socket });
  session.on("error", () => undefined);
  const path = "/svc.v1.DaemonService/GetStatus";
  const stream = session.request({ ":method": "POST", ":path": path, "content-type": "application/json" });
  let status: string | undefined;
  stream.once("response", (headers) => (status = String(headers[":status"])));
  stream.on("error", () => undefined).resume();
  stream.end("{}");
  await new Promise((resolve) => stream.once("close", resolve));
  session.close();
  return status;
}

/** @param agent one connection for all where it keeps them */
function ask(socketPath: string, agent: Agent | false = false): Promise<number> {
  return new Promise((resolve, reject) => {
    request({ socketPath, path: "/v1/status", agent }, (response) => {
      response.resume().once("end", () => resolve(response.statusCode ?? 0));
    })
      .once("error", reject)
      .end();
  });
}

test("who asks while one daemon follows another waits, and is answered", async (t) => {
  t.timeout(60_000);
  const holder = await hold(t);
  const { ino } = await lstat(holder.path);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  const answers: Promise<number | string>[] = [];
  const asking = setInterval(() => {
    for (const way of [false, agent] as const) {
      answers.push(ask(holder.path, way).catch((error: unknown) => String(error)));
    }
  }, 5);
  try {
    for (let round = 0; round < 4; round++) {
      await using door = await openDoor({ socketPath: holder.path, listenFds: [holder.hand()] });
      t.is(door.socketPath, holder.path);
      t.is(await ask(holder.path), 200);
    }
    // Nobody serves it now: these wait for the last one.
    await pause(50);
    t.is((await lstat(holder.path)).ino, ino);
    await using _door = await openDoor({ socketPath: holder.path, listenFds: [holder.hand()] });
    clearInterval(asking);
    t.deepEqual(
      (await Promise.all(answers)).filter((answer) => answer !== 200),
      [],
    );
    t.true(answers.length > 50);
  } finally {
    clearInterval(asking);
  }
});

/** More than twice as many as root has places. */
const crowd = 600;

for (const [what, answerMs] of [
  ["answered at once", 0],
  ["that take a while", 300],
] as const) {
  for (const [protocol, ask] of [
    ["HTTP/1.1", askOn],
    ["HTTP/2", askByHttp2On],
  ] as const) {
    test(`root's requests by ${protocol} ${what}, which came while no daemon ran, are all answered`, async (t) => {
      t.timeout(60_000);
      const holder = await hold(t);
      const sockets = Array.from({ length: crowd }, () => connect(holder.path));
      t.teardown(() => {
        for (const socket of sockets) socket.destroy();
      });
      const statuses = Promise.all(sockets.map(ask));
      // They are in the kernel before anybody listens.
      await eventually(() => assert.ok(sockets.every(({ bytesWritten }) => bytesWritten > 0)));
      await using _door = await openDoor({
        socketPath: holder.path,
        listenFds: [holder.hand()],
        loadPeerUid: asRoot,
        handlers: { daemon: { getStatus: () => pause(answerMs, {}) } },
      });
      const answered = (await statuses).filter((status) => status === "200");
      t.is(answered.length, crowd);
    });
  }
}

test("who came while no daemon ran and says nothing keeps no place from who asks", async (t) => {
  t.timeout(60_000);
  const holder = await hold(t);
  const silent = Array.from({ length: crowd }, () =>
    connect(holder.path)
      .on("error", () => undefined)
      .resume(),
  );
  t.teardown(() => {
    for (const socket of silent) socket.destroy();
  });
  const asking = connect(holder.path);
  const status = askOn(asking);
  await using _door = await openDoor({
    socketPath: holder.path,
    listenFds: [holder.hand()],
    loadPeerUid: asRoot,
    limits: { firstBytesTimeoutMs: 60_000 },
  });
  t.is(await status, "200");
  await eventually(() => assert.ok(silent.filter(({ closed }) => !closed).length <= 256));
});

test("who has connected and not asked yet is answered by the daemon that goes", async (t) => {
  const holder = await hold(t);
  const door = await openDoor({ socketPath: holder.path, listenFds: [holder.hand()] });
  const socket = connect(holder.path);
  // An answer shows that the daemon took the earlier connection.
  await ask(holder.path);
  const stopped = door[Symbol.asyncDispose]();
  // A client that has little of a processor.
  await pause(700);
  socket.write("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
  let answer = "";
  for await (const chunk of socket.setEncoding("utf8")) answer += String(chunk);
  await stopped;
  t.regex(answer, /^HTTP\/1\.1 200 /);
  t.regex(answer, /^connection: close\r$/im);
});

for (const [protocol, ask] of [
  ["HTTP/1.1", askOn],
  ["HTTP/2", askByHttp2On],
] as const)
  test(`${protocol}: who waits for the turn of their user is not the one whose place a newcomer of the same user gets`, async (t) => {
    const asUser = () => () => 4_711;
    await using door = await openDoor({ loadPeerUid: asUser, limits: { maxConnectionsPerPeer: 2 } });
    const { turns } = door.pipeline;
    const held: (() => void)[] = [];
    turns.run = (_name, work) => void held.push(work);
    const status = ask(connect(door.socketPath));
    await eventually(() => assert.ok(held.length > 0));
    // Only those that have been there for a moment are looked at.
    const silent: Socket[] = [];
    for (let count = 0; count < 2; count++) {
      silent.push(connect(door.socketPath));
      await pause(50);
    }
    Reflect.deleteProperty(turns, "run");
    for (const work of held) work();
    t.is(await status, "200");
    await eventually(() => assert.ok(silent[0]?.closed));
    t.false(silent[1]?.closed);
    for (const socket of silent) socket.destroy();
  });

test("who has connected and asks for nothing does not keep the daemon", async (t) => {
  const holder = await hold(t);
  // Else their first bytes are waited for, no longer.
  const limits = { firstBytesTimeoutMs: 120_000, headersTimeoutMs: 120_000 };
  const door = await openDoor({ socketPath: holder.path, listenFds: [holder.hand()], limits });
  const socket = connect(holder.path);
  t.teardown(() => socket.destroy());
  await ask(holder.path);
  const began = performance.now();
  await door[Symbol.asyncDispose]();
  t.true(performance.now() - began < 60_000);
});

test("a socket that the configuration does not name is said", async (t) => {
  const holder = await hold(t);
  await using door = await openDoor({ listenFds: [holder.hand()] });
  t.not(door.socketPath, holder.path);
  t.true(
    door.lines.some(
      ({ message, details }) => message.includes("handed over") && details["path"] === holder.path,
    ),
  );
});

test("a descriptor that is no unix socket is refused", (t) => {
  t.throws(() => handedSockets([0]), { message: /getsockname|is no unix socket/ });
});

test("what systemd says is taken once, and only by whom it is said to", (t) => {
  const env = { LISTEN_PID: "7", LISTEN_FDS: "2", LISTEN_FDNAMES: "a:b", HOME: "/" };
  t.deepEqual(takeListenFds({ ...env }, 8), []);
  t.deepEqual(takeListenFds(env, 7), [3, 4]);
  t.deepEqual(env as object, { HOME: "/" });
  t.deepEqual(takeListenFds({ LISTEN_PID: "7", LISTEN_FDS: "-1" }, 7), []);
  t.deepEqual(takeListenFds({ LISTEN_PID: "7", LISTEN_FDS: "1e3" }, 7), []);
  t.deepEqual(takeListenFds({}, 7), []);
});
