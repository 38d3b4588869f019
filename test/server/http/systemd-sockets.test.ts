/**
 * A socket that another process has bound and keeps: one daemon replaces another on it, and no connection is refused.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { closeSync } from "node:fs";
import { lstat, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent, request } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { takeListenFds } from "../../../src/daemon/listen-fds.ts";
import { loadLibc } from "../../../src/sys/libc.ts";
import { systemdSockets } from "../../../src/server/http/systemd-sockets.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { openGateway } from "./support/gateway.ts";

interface Holder {
  readonly path: string;
  /** A descriptor for one daemon. */
  hand(): number;
}

/** A socket as systemd passes it. */
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

/** A listening TCP socket that outlives each daemon. */
async function holdTcp(
  t: ExecutionContext,
  host: string,
): Promise<{ readonly port: number; hand(): number }> {
  const server = createServer().listen(0, host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const { fd } = (server as unknown as { _handle: { fd: number } })._handle;
  const dup = loadLibc().func("int dup(int fd)") as (fd: number) => number;
  const held = dup(fd);
  // Node accepts nothing on the copy.
  server.close();
  t.teardown(() => closeSync(held));
  return { port, hand: () => dup(held) };
}

const asRoot = () => () => 0;

/** The status of the response; undefined without one. */
async function askOn(socket: Socket): Promise<string | undefined> {
  socket.write("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  let answer = "";
  socket.setEncoding("utf8").on("data", (text: string) => (answer += text));
  socket.on("error", () => undefined);
  await nextEvent(socket, "close");
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
  await nextEvent(stream, "close");
  session.close();
  return status;
}

/** @param agent one connection for all requests if it keeps connections alive */
function ask(socketPath: string, agent: Agent | false = false): Promise<number> {
  return new Promise((resolve, reject) => {
    request({ socketPath, path: "/v1/status", agent }, (response) => {
      response.resume().once("end", () => resolve(response.statusCode ?? 0));
    })
      .once("error", reject)
      .end();
  });
}

test("a request while one daemon replaces another waits and gets a response", async (t) => {
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
      await using gateway = await openGateway({ socketPath: holder.path, listenFds: [holder.hand()] });
      t.is(gateway.socketPath, holder.path);
      t.is(await ask(holder.path), 200);
    }
    // No daemon serves it now: these requests wait for the last one.
    await pause(50);
    t.is((await lstat(holder.path)).ino, ino);
    await using _gateway = await openGateway({ socketPath: holder.path, listenFds: [holder.hand()] });
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

/** More than twice as many as root has slots. */
const crowd = 600;

for (const [what, answerMs] of [
  ["answered at once", 0],
  ["that take a while", 300],
] as const) {
  for (const [protocol, ask] of [
    ["HTTP/1.1", askOn],
    ["HTTP/2", askByHttp2On],
  ] as const) {
    test(`root's requests by ${protocol} ${what}, sent while no daemon ran, all get responses`, async (t) => {
      t.timeout(60_000);
      const holder = await hold(t);
      const sockets = Array.from({ length: crowd }, () => connect(holder.path));
      t.teardown(() => {
        for (const socket of sockets) socket.destroy();
      });
      const statuses = Promise.all(sockets.map(ask));
      // They are in the kernel's queue before a daemon listens.
      await eventually(() => assert.ok(sockets.every(({ bytesWritten }) => bytesWritten > 0)));
      await using _gateway = await openGateway({
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

test("silent connections from before the start do not take slots from clients with a request", async (t) => {
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
  await using _gateway = await openGateway({
    socketPath: holder.path,
    listenFds: [holder.hand()],
    loadPeerUid: asRoot,
    limits: { firstBytesTimeoutMs: 60_000 },
  });
  t.is(await status, "200");
  await eventually(() => assert.ok(silent.filter(({ closed }) => !closed).length <= 256));
});

test("the stopping daemon responds to a connection that has not sent its request yet", async (t) => {
  const holder = await hold(t);
  const gateway = await openGateway({ socketPath: holder.path, listenFds: [holder.hand()] });
  const socket = connect(holder.path);
  // A response shows that the daemon accepted the earlier connection.
  await ask(holder.path);
  const stopped = gateway[Symbol.asyncDispose]();
  // A client with little CPU time.
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
  test(`${protocol}: a pending request is not displaced by a newer connection of the same user`, async (t) => {
    const asUser = () => () => 4_711;
    await using gateway = await openGateway({ loadPeerUid: asUser, limits: { maxConnectionsPerPeer: 2 } });
    const { fairQueue } = gateway.pipeline;
    const held: (() => void)[] = [];
    fairQueue.run = (_name, work) => void held.push(work);
    const status = ask(connect(gateway.socketPath));
    await eventually(() => assert.ok(held.length > 0));
    // Only connections that are a moment old are considered.
    const silent: Socket[] = [];
    for (let count = 0; count < 2; count++) {
      silent.push(connect(gateway.socketPath));
      await pause(50);
    }
    Reflect.deleteProperty(fairQueue, "run");
    for (const work of held) work();
    t.is(await status, "200");
    await eventually(() => assert.ok(silent[0]?.closed));
    t.false(silent[1]?.closed);
    for (const socket of silent) socket.destroy();
  });

test("a silent connection does not delay the daemon's exit", async (t) => {
  const holder = await hold(t);
  // With these limits, an exit that waited for silent connections would take two minutes.
  const limits = { firstBytesTimeoutMs: 120_000, headersTimeoutMs: 120_000 };
  const gateway = await openGateway({ socketPath: holder.path, listenFds: [holder.hand()], limits });
  const socket = connect(holder.path);
  t.teardown(() => socket.destroy());
  await ask(holder.path);
  const began = performance.now();
  await gateway[Symbol.asyncDispose]();
  t.true(performance.now() - began < 60_000);
});

test("a socket that the configuration does not name is reported as unused", async (t) => {
  const holder = await hold(t);
  await using gateway = await openGateway({ listenFds: [holder.hand()] });
  t.not(gateway.socketPath, holder.path);
  t.true(
    gateway.lines.some(
      ({ message, details }) =>
        message.includes("from systemd is not used") && details["address"] === holder.path,
    ),
  );
  t.like(gateway.listeners.statuses.at(-1), { kind: "socket", address: holder.path, state: "UNUSED" });
});

for (const host of ["127.0.0.1", "::1"]) {
  test(`a TCP socket on ${host} that systemd holds is served, and connections wait while no daemon runs`, async (t) => {
    const holder = await holdTcp(t, host);
    const tcp = { host, port: holder.port };
    {
      await using gateway = await openGateway({ tcp, listenFds: [holder.hand()] });
      t.is(await askOn(connect(tcp)), "401");
      t.like(gateway.listeners.statuses[0], { kind: "tcp", state: "LISTENING", reason: "" });
    }
    const waiting = askOn(connect(tcp));
    await using _gateway = await openGateway({ tcp, listenFds: [holder.hand()] });
    t.is(await waiting, "401");
  });
}

test("a TCP socket that systemd holds for another address is reported with the unit to change", async (t) => {
  const holder = await holdTcp(t, "127.0.0.1");
  await using gateway = await openGateway({ listenFds: [holder.hand()] });
  t.not(gateway.port, holder.port);
  const unused = gateway.listeners.statuses.at(-1);
  t.like(unused, { kind: "tcp", address: `127.0.0.1:${holder.port}`, state: "UNUSED" });
  t.regex(unused?.reason ?? "", /\[api\] listen is 127\.0\.0\.1:0; .*systemctl edit svc-tcp\.socket$/);
});

test("a descriptor that is not a socket is rejected", (t) => {
  t.throws(() => systemdSockets([0]), {
    message: /getsockname|neither a unix socket with a path nor a TCP socket/,
  });
});

test("systemd's variables are used once, and only by the process that they name", (t) => {
  const env = { LISTEN_PID: "7", LISTEN_FDS: "2", LISTEN_FDNAMES: "a:b", HOME: "/" };
  t.deepEqual(takeListenFds({ ...env }, 8), []);
  t.deepEqual(takeListenFds(env, 7), [3, 4]);
  t.deepEqual(env as object, { HOME: "/" });
  t.deepEqual(takeListenFds({ LISTEN_PID: "7", LISTEN_FDS: "-1" }, 7), []);
  t.deepEqual(takeListenFds({ LISTEN_PID: "7", LISTEN_FDS: "1e3" }, 7), []);
  t.deepEqual(takeListenFds({}, 7), []);
});
