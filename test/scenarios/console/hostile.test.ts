/** Console clients that flood, stall or send invalid messages. */
import assert from "node:assert/strict";
import { access, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import {
  isRoot,
  needsRoot,
  startDaemon,
  type TestDaemon,
  type UserConnection,
} from "../../support/daemon.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { connectConsole, openConsole, type SocketConsole } from "../../console/support/socket-console.ts";

const nobody = 65534;
/** A line of the flood. Short lines take the terminal as long as long ones. */
const line = "x".repeat(99);
const rootTest = isRoot ? test : test.skip;
const emptyDaemon = sharedDaemon();

async function installIn(daemon: TestDaemon): Promise<void> {
  const dir = join(daemon.dir, "package");
  // Not the user's own shell, which may run much at its start.
  await writePackage(dir, await freePort(), { manifest: "console: { exec: [sh, -i] }\n" });
  await daemon.client(AppService).installApp({ spec: dir });
}

async function withApp(): Promise<TestDaemon> {
  const daemon = await emptyDaemon();
  await installIn(daemon);
  return daemon;
}

async function open(daemon: TestDaemon, session = "attach"): Promise<SocketConsole> {
  const { token } = await daemon.client(AppService).issueConsoleToken({ appId: "web", session });
  return openConsole({ port: daemon.port }, { appId: "web", session, token });
}

async function memoryMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]) / 1024;
}

async function isAlive(daemon: TestDaemon): Promise<void> {
  assert.equal((await daemon.client(AppService).getApp({ id: "web" })).id, "web");
}

test("a message that is too large or invalid closes only its own session", async (t) => {
  const daemon = await withApp();
  const large = await open(daemon);
  large.socket.send(Buffer.alloc(2 ** 20 + 1));
  t.is(await large.closed, 1009);
  for (const text of ["{", "[]", '{"type":"resize","cols":0,"rows":5}', '{"type":"ack","bytes":-1}', "{}"]) {
    const odd = await open(daemon);
    odd.socket.send(text);
    t.is(await odd.closed, 1008, text);
    t.like(odd.said.at(-1), { type: "error", code: "invalid_argument" });
  }
  await isAlive(daemon);
});

test("a message in more fragments than allowed ends its session", async (t) => {
  const daemon = await withApp();
  const { socket, closed } = await open(daemon, "logs");
  for (let n = 0; n <= 64; n++) socket.send("x", { fin: false });
  t.is(await closed, 1008);
  await isAlive(daemon);
});

test("a client that does not read blocks only its own terminal, and the daemon's memory stays bounded", async (t) => {
  // A process of its own, because memory freed by other tests would be reused first.
  await using daemon = await startDaemon();
  await installIn(daemon);
  const stalled = await open(daemon);
  await stalled.shows(/[#$] /);
  const before = await memoryMiB(daemon.pid);
  stalled.socket.pause();
  // More than the connection buffers, so that the write cannot finish.
  const end = join(daemon.dir, "end");
  stalled.type(`yes ${line} | head -c 30000000; touch ${end}\n`);
  const other = await open(daemon);
  other.type("i=0; while [ $i -lt 30 ]; do echo turn-$i; i=$((i+1)); sleep 0.2; done; echo the-$((40+2))\n");
  await other.shows("the-42");
  await t.throwsAsync(access(end), { code: "ENOENT" });
  const grown = (await memoryMiB(daemon.pid)) - before;
  t.true(grown < 60, `${grown} MiB more`);
  stalled.socket.resume();
  await eventually(() => access(end), 60_000);
  stalled.socket.terminate();
  other.socket.terminate();
});

test("input for a program that does not read is throttled without affecting others", async (t) => {
  const daemon = await withApp();
  const flooder = await open(daemon);
  flooder.type("stty raw -echo; echo begun; exec sleep 1000\n");
  await flooder.shows("begun");
  const before = await memoryMiB(daemon.pid);
  for (let sent = 0; sent < 64; sent++) flooder.socket.send(Buffer.alloc(2 ** 20));
  const other = await open(daemon);
  other.type("echo the-$((40+2))\n");
  await other.shows("the-42");
  // All buffers are full by now.
  await eventually(async () => {
    const before = flooder.socket.bufferedAmount;
    await wait(1_000);
    assert.equal(flooder.socket.bufferedAmount, before);
  }, 30_000);
  t.true(flooder.socket.bufferedAmount > 2 ** 25, "most of it waits at the sender");
  const grown = (await memoryMiB(daemon.pid)) - before;
  t.true(grown < 60, `${grown} MiB more`);
  flooder.socket.terminate();
  other.socket.terminate();
});

test("a slow log reader is notified of the number of skipped bytes", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "talks");
  // More than all retained log files.
  const script = `while [ ! -e ${daemon.dir}/go ]; do sleep 0.1; done; yes ${line} | head -c 200000000; echo the-$((40+2)); sleep 1000`;
  const yaml = `id: web\nname: Talks\nversion: "1"\nprocess:\n  exec: [sh, -c, "${script}"]\n`;
  await writePackage(dir, 1, { files: { "svc.yaml": yaml } });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const stalled = await open(daemon, "logs");
  await eventually(() => assert.equal(stalled.said[0]?.["type"], "opened"), 20_000);
  stalled.socket.pause();
  await writeFile(join(daemon.dir, "go"), "");
  const newest = async (): Promise<string> =>
    (await apps.getAppLogs({ id: "web", tail: 1 })).lines.map(({ text }) => text).join();
  await eventually(async () => assert.match(await newest(), /the-42/), 60_000);
  stalled.socket.resume();
  await eventually(() => assert.match(stalled.shown().slice(-200), /the-42/), 60_000);
  const missed = stalled.said.reduce((sum, { bytes }) => sum + Number(bytes ?? 0), 0);
  t.true(missed > 10_000_000, `${missed} bytes`);
  stalled.socket.terminate();
});

test("a slow terminal viewer is notified of skipped bytes and gets the latest screen", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "talks");
  const script = `read x; yes ${line} | head -c 60000000; echo; echo the-$((40+2)); sleep 1000`;
  const yaml = `id: web\nname: Talks\nversion: "1"\nprocess:\n  exec: [sh, -c, "${script}"]\nconsole: true\n`;
  await writePackage(dir, 1, { files: { "svc.yaml": yaml } });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const stalled = await open(daemon);
  await eventually(() => assert.equal(stalled.said[0]?.["type"], "opened"), 20_000);
  stalled.socket.pause();
  const other = await open(daemon);
  other.type("go\n");
  await eventually(() => assert.match(other.shown().slice(-200), /the-42/), 60_000);
  stalled.socket.resume();
  await eventually(() => assert.match(stalled.shown().slice(-200), /the-42/), 60_000);
  const gaps = stalled.said.filter(({ type }) => type === "gap").map(({ bytes }) => Number(bytes));
  const missed = gaps.reduce((sum, bytes) => sum + bytes, 0);
  t.true(missed > 10_000_000, `${missed} bytes`);
  t.true(stalled.shown().length + missed >= 60_000_000, "the viewer receives the number of skipped bytes");
  for (const { socket } of [stalled, other]) socket.terminate();
});

test("sessions beyond an app's limit are rejected until one is closed", async (t) => {
  const daemon = await withApp();
  const sessions = await Promise.all(Array.from({ length: 32 }, () => open(daemon, "logs")));
  await eventually(() => assert.ok(sessions.every(({ said }) => said.length > 0)), 20_000);
  const refused = await open(daemon, "logs");
  await refused.closed;
  t.like(refused.said.at(-1), { type: "error", reason: "too_many" });
  sessions[0]?.socket.terminate();
  await eventually(async () => {
    const another = await open(daemon, "logs");
    await eventually(() => assert.ok(another.said.length > 0));
    const [first] = another.said;
    another.socket.terminate();
    assert.equal(first?.["type"], "opened");
  }, 20_000);
  for (const { socket } of sessions) socket.terminate();
});

rootTest(`the session limit of a user counts the sessions of all apps${needsRoot}`, async (t) => {
  await using daemon = await startDaemon({ config: "[limits]\nmax_consoles_per_user = 2\n" });
  await using user = await daemon.as(nobody);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  for (let app = 0; app < 2; app++) await user.client(AppService).installApp({ spec: dir });
  const openAs = async (client: Pick<UserConnection, "client">, appId: string): Promise<SocketConsole> => {
    const { token } = await client.client(AppService).issueConsoleToken({ appId, session: "logs" });
    return openConsole({ socketPath: daemon.socketPath }, { appId, session: "logs", token });
  };
  const sessions = [await openAs(user, "web"), await openAs(user, "web-2")];
  await eventually(() => assert.ok(sessions.every(({ said }) => said.length > 0)), 20_000);
  const refused = await openAs(user, "web-2");
  await refused.closed;
  t.like(refused.said.at(-1), { type: "error", reason: "too_many" });
  t.regex(String(refused.said.at(-1)?.["error"]), /uid 65534 has 2 .*max_consoles_per_user/);
  const roots = await openAs(daemon, "web");
  await eventually(() => assert.equal(roots.said[0]?.["type"], "opened"), 20_000);
  sessions[0]?.socket.terminate();
  await eventually(async () => {
    const another = await openAs(user, "web");
    await eventually(() => assert.ok(another.said.length > 0));
    another.socket.terminate();
    assert.equal(another.said[0]?.["type"], "opened");
  }, 20_000);
  for (const { socket } of [...sessions, roots]) socket.terminate();
});

test("a thousand clients that open and close sessions do not delay others", async (t) => {
  const daemon = await withApp();
  const apps = daemon.client(AppService);
  for (let round = 0; round < 10; round++) {
    await Promise.all(
      Array.from({ length: 100 }, async () => {
        const socket = connectConsole(
          { port: daemon.port },
          { appId: "web", session: "logs", token: "svcc_nonsense" },
        );
        socket.on("error", () => undefined);
        await nextEvent(socket, "close");
      }),
    );
  }
  const { token } = await apps.issueConsoleToken({ appId: "web", session: "attach" });
  const shell = await openConsole(
    { socketPath: daemon.socketPath },
    { appId: "web", session: "attach", token },
  );
  shell.type("echo the-$((40+2))\n");
  await shell.shows("the-42");
  t.is((await apps.getApp({ id: "web" })).id, "web");
  shell.socket.terminate();
});
