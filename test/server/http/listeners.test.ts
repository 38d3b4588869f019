/** Listeners of the daemon: the file of the unix socket, the TCP address, and a graceful stop. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, lstat, mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer, type AddressInfo, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConnectError, createClient } from "@connectrpc/connect";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { tryLock } from "../../../src/sys/file-lock.ts";
import { nextEvent, eventually } from "../../support/eventually.ts";
import { rest, protocols, transportTo } from "./support/clients.ts";
import { openGateway, collectLog } from "./support/gateway.ts";
import type { FakeHandlers } from "./support/fake-services.ts";

// The file of the unix socket: stale files are replaced, live ones stay, and a daemon removes only its own.

async function temporaryDirectory(t: ExecutionContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "svc-socket-"));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

test("the file of a dead daemon is replaced", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const program = `require("net").createServer().listen(${JSON.stringify(path)}, () => console.log("up"))`;
  const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  await nextEvent(child.stdout, "data");
  child.kill("SIGKILL");
  await nextEvent(child, "exit");
  t.true((await lstat(path)).isSocket());

  await using gateway = await openGateway({ socketPath: path });
  t.is(gateway.socketPath, path);
  t.is((await rest(gateway, "/v1/status", { listener: "unix" })).status, 200);
});

test("a live socket of another process is never replaced", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const other = createServer().listen(path);
  await once(other, "listening");
  const { ino } = await lstat(path);
  await using gateway = await openGateway({ socketPath: path });
  t.is(gateway.socketPath, "");
  t.true(gateway.lines.some(({ level }) => level === "warn"));
  t.is((await lstat(path)).ino, ino);
  t.is((await rest(gateway, "/v1/status")).status, 200);
  other.close();
});

test("a second daemon does not touch the first one's socket, also when it exits", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  await using first = await openGateway({ socketPath: path });
  const second = await openGateway({ socketPath: path });
  t.is(second.socketPath, "");
  await second[Symbol.asyncDispose]();
  t.is((await rest(first, "/v1/status", { listener: "unix" })).status, 200);
});

test("without TCP a socket in use fails the start", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  await using _first = await openGateway({ socketPath: path });
  await t.throwsAsync(openGateway({ socketPath: path, tcp: undefined }), {
    message: `another daemon serves ${path}`,
  });
});

test("two daemons that start concurrently get one socket", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const gateways = await Promise.all([1, 2, 3, 4].map(() => openGateway({ socketPath: path })));
  t.is(gateways.filter((gateway) => gateway.socketPath === path).length, 1);
  for (const gateway of gateways) await gateway[Symbol.asyncDispose]();
});

test("a socket path locked by another daemon is taken before it listens, and free after the lock is released", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const held = await open(`${path}.lock`, "w");
  t.true(tryLock(held.fd));
  const second = await openGateway({ socketPath: path });
  t.is(second.socketPath, "");
  await second[Symbol.asyncDispose]();
  await held.close();
  await using third = await openGateway({ socketPath: path });
  t.is(third.socketPath, path);
});

test("a file that is not a socket stays", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  await writeFile(path, "precious");
  await using gateway = await openGateway({ socketPath: path });
  t.is(gateway.socketPath, "");
  t.is(await readFile(path, "utf8"), "precious");
});

test("a stop removes only the own file", async (t) => {
  const directory = await temporaryDirectory(t);
  const path = join(directory, "svc.sock");
  const gateway = await openGateway({ socketPath: path });
  await gateway[Symbol.asyncDispose]();
  await t.throwsAsync(lstat(path), { code: "ENOENT" });

  const robbed = await openGateway({ socketPath: path });
  await rm(path);
  const other = createServer().listen(path);
  await once(other, "listening");
  await robbed[Symbol.asyncDispose]();
  t.true((await lstat(path)).isSocket());
  other.close();
});

test("a path that is too long for a socket is a warning", async (t) => {
  const path = join(await temporaryDirectory(t), "x".repeat(100));
  await using gateway = await openGateway({ socketPath: path });
  t.is(gateway.socketPath, "");
  t.is((await rest(gateway, "/v1/status")).status, 200);
});

test("a missing directory is created", async (t) => {
  const directory = join(await temporaryDirectory(t), "a", "b");
  await using gateway = await openGateway({ socketPath: join(directory, "svc.sock"), mode: "user" });
  t.is((await lstat(directory)).mode & 0o777, 0o700);
  t.is((await rest(gateway, "/v1/status", { listener: "unix" })).status, 200);
});

test("root has a separate socket that only root can reach, and that is removed with its daemon", async (t) => {
  const directory = await temporaryDirectory(t);
  const path = join(directory, "root/svc.sock");
  {
    await using gateway = await openGateway({ socketPath: join(directory, "svc.sock") });
    t.is((await lstat(join(directory, "root"))).mode & 0o777, 0o700);
    t.is((await lstat(path)).mode & 0o777, 0o600);
    t.is((await rest({ ...gateway, socketPath: path }, "/v1/status", { listener: "unix" })).status, 200);
  }
  await t.throwsAsync(lstat(path), { code: "ENOENT" });
});

for (const [what, mode] of [
  ["opens", 0o755],
  ["writes to", 0o770],
] as const) {
  test(`a directory that another user ${what} is rejected for root's socket`, async (t) => {
    const directory = await temporaryDirectory(t);
    await mkdir(join(directory, "root"));
    await chmod(join(directory, "root"), mode);
    await using gateway = await openGateway({ socketPath: join(directory, "svc.sock") });
    await t.throwsAsync(lstat(join(directory, "root/svc.sock")), { code: "ENOENT" });
    t.true(
      gateway.lines.some(
        ({ level, message }) =>
          level === "warn" && message.startsWith("failed to bind root's separate socket"),
      ),
    );
    t.is((await rest(gateway, "/v1/status", { listener: "unix" })).status, 200);
  });
}

test("the daemon of one user has one socket", async (t) => {
  const directory = await temporaryDirectory(t);
  await using gateway = await openGateway({ socketPath: join(directory, "svc.sock"), mode: "user" });
  t.not(gateway.socketPath, "");
  await t.throwsAsync(lstat(join(directory, "root")), { code: "ENOENT" });
});

test("root is accepted before hundreds of earlier connections of others", async (t) => {
  const directory = await temporaryDirectory(t);
  await using gateway = await openGateway({
    socketPath: join(directory, "svc.sock"),
    limits: { maxRootConnections: 2_000 },
  });
  const others = 1_000;
  let answered = 0;
  const ask = (socketPath: string, onAnswer: () => void): Promise<void> =>
    new Promise((resolve, reject) => {
      const socket = connect(socketPath).once("data", onAnswer).once("close", resolve).once("error", reject);
      socket.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    });
  const all = Array.from({ length: others }, () => ask(gateway.socketPath, () => answered++));
  let before = others;
  await ask(join(directory, "root/svc.sock"), () => (before = answered));
  await Promise.all(all);
  t.log(`${before} of ${others} got their response before`);
  t.is(answered, others);
  t.true(before < others / 2);
});

// A TCP address that is in use at the start: the socket is served, and TCP follows once the address is free.

async function takePort(): Promise<{
  readonly server: Server;
  readonly tcp: { host: string; port: number };
}> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, tcp: { host: "127.0.0.1", port: (server.address() as AddressInfo).port } };
}

test("a TCP address in use leaves the socket serving, and is reported with what to do", async (t) => {
  const { server, tcp } = await takePort();
  t.teardown(() => server.close());
  await using gateway = await openGateway({ tcp });
  t.is((await rest(gateway, "/v1/status", { listener: "unix" })).status, 200);
  t.is(gateway.listeners.addresses.tcp, undefined);
  const [status, socket] = gateway.listeners.statuses;
  t.like(status, { kind: "tcp", address: `127.0.0.1:${tcp.port}`, state: "FAILED" });
  t.regex(status?.reason ?? "", new RegExp(`EADDRINUSE.*svc listening ${tcp.port}`));
  t.like(socket, { kind: "socket", state: "LISTENING", reason: "" });
  t.true(
    gateway.lines.some(
      ({ level, message }) => level === "warn" && /failed to bind the TCP address/.test(message),
    ),
  );
});

test("a TCP address is bound once the program that holds it stops", async (t) => {
  const { server, tcp } = await takePort();
  await using gateway = await openGateway({ tcp, tcpRetryMs: { first: 20, longest: 50 } });
  server.close();
  await eventually(() => assert.equal(gateway.listeners.addresses.tcp?.port, tcp.port));
  t.like(gateway.listeners.statuses[0], { state: "LISTENING", reason: "" });
  t.is((await rest({ ...gateway, ...tcp, url: `http://127.0.0.1:${tcp.port}` }, "/healthz")).status, 200);
});

test("a stopped daemon does not take the TCP address later", async (t) => {
  const { server, tcp } = await takePort();
  {
    await using _gateway = await openGateway({ tcp, tcpRetryMs: { first: 20, longest: 20 } });
  }
  server.close();
  await nextEvent(server, "close");
  await new Promise((resolve) => setTimeout(resolve, 100));
  const again = createServer().listen(tcp.port, "127.0.0.1");
  await once(again, "listening");
  again.close();
  t.pass();
});

test("the start fails when neither the TCP address nor the socket can be bound", async (t) => {
  await using gateway = await openGateway();
  const { log, lines } = collectLog();
  const tcp = { host: "127.0.0.1", port: gateway.port };
  await t.throwsAsync(openGateway({ tcp, socketPath: join(gateway.directory, "svc.sock"), log }), {
    message: new RegExp(
      `cannot listen on 127.0.0.1:${gateway.port} \\(EADDRINUSE\\): .*; the unix socket cannot be bound either: another daemon`,
    ),
  });
  t.deepEqual(lines, [], "the error names all causes");
});

// A graceful stop: no new calls, running calls get the grace period, and the rest ends as unavailable.

/** Handlers that wait until they may continue, and report their start and abort. */
function waiting() {
  const begun = Promise.withResolvers<undefined>();
  const goOn = Promise.withResolvers<undefined>();
  const aborted = Promise.withResolvers<unknown>();
  const handlers: FakeHandlers = {
    app: {
      async startApp({ id }, { signal }) {
        signal.addEventListener("abort", () => aborted.resolve(signal.reason));
        begun.resolve(undefined);
        await goOn.promise;
        return { id };
      },
      async *streamAppLogs(_request, { signal }) {
        signal.addEventListener("abort", () => aborted.resolve(signal.reason));
        yield { lines: [{ text: "first" }] };
        begun.resolve(undefined);
        await goOn.promise;
      },
    },
  };
  return { begun: begun.promise, goOn: () => goOn.resolve(undefined), aborted: aborted.promise, handlers };
}

test("a running call may finish", async (t) => {
  const { begun, goOn, handlers } = waiting();
  await using gateway = await openGateway({ handlers });
  const answer = rest(gateway, "/v1/apps/hello/start", { method: "POST" });
  await begun;
  const stopped = gateway.listeners.stop();
  await t.throwsAsync(rest(gateway, "/v1/status"), { message: /ECONNREFUSED/ });
  goOn();
  const { status, json, headers } = await answer;
  t.deepEqual([status, json.id, headers.connection], [200, "hello", "close"]);
  await stopped;
});

test("a call beyond the grace period is unavailable, and its handler is aborted", async (t) => {
  const { begun, goOn, aborted, handlers } = waiting();
  await using gateway = await openGateway({ handlers, limits: { stopGraceMs: 50 } });
  const answer = rest(gateway, "/v1/apps/hello/start", { method: "POST" });
  await begun;
  await gateway.listeners.stop();
  const { status, json } = await answer;
  t.deepEqual([status, json.reason], [503, "unavailable"]);
  t.like(await aborted, { code: "unavailable" });
  t.deepEqual(gateway.audits, []);
  // The record has the handler's result, even without a client.
  goOn();
  await new Promise((resolve) => setImmediate(resolve));
  t.is(gateway.audits[0]?.result, "ok");
});

for (const protocol of protocols) {
  test(`${protocol}: a stream that only watches ends at once as unavailable`, async (t) => {
    const { begun, goOn, handlers } = waiting();
    await using gateway = await openGateway({ handlers, limits: { stopGraceMs: 20_000 } });
    const client = createClient(AppService, transportTo(gateway, protocol, "TCP"));
    const stream = client.streamAppLogs({ id: "hello" })[Symbol.asyncIterator]();
    t.is((await stream.next()).done, false);
    const next = stream.next();
    await begun;
    const startMs = performance.now();
    const [error] = await Promise.all([
      t.throwsAsync(next, { instanceOf: ConnectError }),
      gateway.listeners.stop(),
    ]);
    t.like(svcErrorOf(error), { code: "unavailable", message: "the daemon is stopping; try again" });
    t.true(performance.now() - startMs < 5000);
    goOn();
  });
}

test("idle and silent connections do not delay a stop", async (t) => {
  await using gateway = await openGateway();
  const silent = connect(gateway.port, "127.0.0.1");
  await once(silent, "connect");
  const closed = once(silent, "close");
  const startMs = performance.now();
  await gateway.listeners.stop();
  await closed;
  t.true(performance.now() - startMs < 4_000);
});

test("a second stop waits for the first", async (t) => {
  await using gateway = await openGateway();
  await Promise.all([gateway.listeners.stop(), gateway.listeners.stop()]);
  t.pass();
});
