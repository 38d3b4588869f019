/** Apps that outlive the daemon, and log readers that are slower than their app's exit. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { link, mkdir, readFile, readdir, rm, truncate, writeFile } from "node:fs/promises";
import { type Socket, createServer } from "node:net";
import { constants } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep, setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { ProcessRuntime } from "../../../src/runtimes/process/process-runtime.ts";
import type { SupervisorState } from "../../../src/runtimes/process/supervisor-types.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { Cgroups } from "../../../src/sys/cgroup.ts";
import {
  Fixture,
  eventually,
  isRoot,
  pidsRunning,
  runtimeOptions,
  uniqueSleep,
} from "../../runtimes/support/fixture.ts";
import { sharedFixtures } from "../../runtimes/support/shared-fixture.ts";
import { nextEvent } from "../../support/eventually.ts";

const createFixture = sharedFixtures();

const rootTest = isRoot ? test : test.skip;

/** Starts apps from another process, which is killed with SIGKILL once they run. */
async function startFromDoomedDaemon(fixture: Fixture, apps: readonly RunnableApp[]): Promise<void> {
  const daemon = spawn(
    process.execPath,
    [join(import.meta.dirname, "../../runtimes/support/daemon.ts"), fixture.store],
    {
      stdio: ["pipe", "pipe", "inherit"],
    },
  );
  daemon.stdin.write(`${JSON.stringify({ start: apps })}\n`);
  await nextEvent(daemon.stdout, "data");
  const exited = once(daemon, "exit");
  daemon.kill("SIGKILL");
  await exited;
}

async function readState(app: RunnableApp): Promise<SupervisorState> {
  return JSON.parse(await readFile(join(app.runDir, "state.json"), "utf8")) as SupervisorState;
}

test("no signal opens a supervisor to debuggers", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("exec sleep 3600");
  await fixture.runtime.start(app);
  const { supervisor } = await readState(app);
  const status = await readFile(`/proc/${supervisor.pid}/status`, "utf8");
  const caught = BigInt(`0x${/^SigCgt:\t(\w+)$/m.exec(status)?.[1]}`);
  t.not(caught & (1n << BigInt(constants.signals.SIGTERM - 1)), 0n);
  t.is(caught & (1n << BigInt(constants.signals.SIGUSR1 - 1)), 0n);
  await fixture.runtime.stop(app);
});

test("a killed daemon leaves apps running; the next reattaches to them with logs and exit codes", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("echo first; trap 'echo last; exit 5' USR1; while :; do sleep 0.05; done");
  await startFromDoomedDaemon(fixture, [app]);
  const { app: main } = await readState(app);
  t.is(await fixture.runtime.reattach(app), "running");
  t.like(fixture.runtime.status(app.id), { state: "RUNNING", pid: main?.pid });
  process.kill(main?.pid ?? 0, "SIGUSR1");
  await eventually("exit", () => fixture.runtime.status(app.id)?.state === "CRASHED");
  t.like(fixture.runtime.status(app.id), { exitCode: 5, lastLines: ["first", "last"] });
  t.deepEqual(await fixture.output(app), ["first", "last"]);
});

test("the next daemon also sets the limits of a running app", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("exec sleep 1000", { limits: { memoryBytes: 1e8 } });
  await startFromDoomedDaemon(fixture, [app]);
  const root = join(fixture.store, "cgroup");
  for (const path of ["", "apps", ...["", "supervisor", "app"].map((part) => join("apps", app.id, part))]) {
    await mkdir(join(root, path), { recursive: true });
    await writeFile(join(root, path, "cgroup.controllers"), "memory\n");
    await writeFile(join(root, path, "cgroup.procs"), "");
  }
  const cgroups = new Cgroups({ root, controllers: new Set(["memory"]) });
  await using next = await createFixture({ store: fixture.store, cgroups });
  t.is(await next.runtime.reattach(app), "running");
  t.is(await readFile(join(root, "apps", app.id, "app/memory.max"), "utf8"), "100000000");
  await fixture.runtime.stop(app);
});

test("the next daemon learns what happened while no daemon ran", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("echo bye; sleep 0.4; exit 9");
  await startFromDoomedDaemon(fixture, [app]);
  await eventually("end", async () => (await readState(app)).final);
  t.is(await fixture.runtime.reattach(app), "ended");
  t.like(fixture.runtime.status(app.id), { state: "CRASHED", exitCode: 9, lastLines: ["bye"] });
});

test("a killed supervisor is detected, and the next start kills its remaining processes", async (t) => {
  await using fixture = await createFixture();
  const marker = uniqueSleep();
  const app = await fixture.shell(`(setsid sleep ${marker} &); exec sleep ${marker}`);
  await fixture.runtime.start(app);
  process.kill((await readState(app)).supervisor.pid, "SIGKILL");
  await eventually("notice", () => fixture.runtime.status(app.id)?.state === "CRASHED");
  t.regex(fixture.runtime.status(app.id)?.reason ?? "", /supervisor was killed/);
  t.is((await pidsRunning(marker)).length, 2);
  const before = await pidsRunning(marker);
  await fixture.runtime.start(app);
  await eventually("new processes", async () => (await pidsRunning(marker)).length === 2 || undefined);
  const after = await pidsRunning(marker);
  t.deepEqual(
    after.filter((pid) => before.includes(pid)),
    [],
  );
  t.is(fixture.runtime.status(app.id)?.state, "RUNNING");
});

test("if a supervisor is killed with its daemon, the next daemon detects it, and stop kills the rest", async (t) => {
  await using fixture = await createFixture();
  const marker = uniqueSleep();
  const app = await fixture.shell(`exec sleep ${marker}`);
  await startFromDoomedDaemon(fixture, [app]);
  process.kill((await readState(app)).supervisor.pid, "SIGKILL");
  t.is((await pidsRunning(marker)).length, 1);
  t.is(await fixture.runtime.reattach(app), "lost");
  t.is(fixture.runtime.status(app.id)?.state, "CRASHED");
  await fixture.runtime.stop(app);
  t.true(await eventually("nothing of it runs", async () => (await pidsRunning(marker)).length === 0));
  t.is(fixture.runtime.status(app.id)?.state, "STOPPED");
  t.true((await readState(app)).final);
});

test("stop kills a supervisor that hangs", async (t) => {
  await using fixture = await createFixture();
  const marker = uniqueSleep();
  const app = await fixture.shell(`exec sleep ${marker}`, { stop: { signal: "SIGTERM", graceMs: 200 } });
  await fixture.runtime.start(app);
  const { pid } = (await readState(app)).supervisor;
  process.kill(pid, "SIGSTOP");
  await fixture.runtime.stop(app);
  t.true(await eventually("nothing of it runs", async () => (await pidsRunning(marker)).length === 0));
  t.true(await eventually("the supervisor is gone", () => !existsSync(`/proc/${pid}`)));
});

test("SIGTERM to the supervisor stops the app, SIGHUP does not", async (t) => {
  await using fixture = await createFixture();
  const marker = uniqueSleep();
  const app = await fixture.shell(`exec sleep ${marker}`);
  await fixture.runtime.start(app);
  const { pid } = (await readState(app)).supervisor;
  process.kill(pid, "SIGHUP");
  process.kill(pid, "SIGTERM");
  await eventually("stop", () => fixture.runtime.status(app.id)?.state === "STOPPED");
  t.true(await eventually("nothing of it runs", async () => (await pidsRunning(marker)).length === 0));
});

test("after a reboot a running app is lost, and an exited one is not", async (t) => {
  await using fixture = await createFixture();
  const running = await fixture.shell("exec sleep 1000");
  const ended = await fixture.shell("sleep 0.3; exit 1");
  await fixture.runtime.start(running);
  await fixture.runtime.start(ended);
  await eventually("crash", () => fixture.runtime.status(ended.id)?.state === "CRASHED");
  const state = await readState(running);
  await fixture.runtime.stop(running);
  const bootId = "00000000-0000-0000-0000-000000000000";
  const owner = await fixture.userHelpers.as(running.uid);
  await owner.writeFile(running.runDir, "state.json", JSON.stringify({ ...state, bootId }));
  await using next = new ProcessRuntime(runtimeOptions(fixture.userHelpers, state.bootId));
  t.is(await next.reattach(running), "lost");
  t.is(await next.reattach(ended), "ended");
  await next.start(running);
  t.is(next.status(running.id)?.state, "RUNNING");
  await next.stop(running);
});

test("a damaged state and specification do not prevent a start", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  await fixture.runtime.stop(app);
  const owner = await fixture.userHelpers.as(app.uid);
  await owner.writeFile(app.runDir, "state.json", '{"version":1,"phase":"RUN');
  await using next = new ProcessRuntime(runtimeOptions(fixture.userHelpers, "boot"));
  await next.reattach(app);
  await next.start(app);
  t.is(next.status(app.id)?.state, "RUNNING");
  await next.stop(app);
  await owner.writeFile(app.runDir, "state.json", "garbage");
  await owner.writeFile(app.runDir, "spec.json", "garbage");
  await next.start(app);
  t.is(next.status(app.id)?.state, "RUNNING");
  await next.stop(app);
});

test("many apps are reattached concurrently and quickly", async (t) => {
  await using fixture = await createFixture();
  const apps = await Promise.all(Array.from({ length: 12 }, () => fixture.shell("exec sleep 1000")));
  await startFromDoomedDaemon(fixture, apps);
  const startedMs = performance.now();
  const found = await Promise.all(apps.map((app) => fixture.runtime.reattach(app)));
  t.log(`reattached ${apps.length} in ${Math.round(performance.now() - startedMs)} ms`);
  t.true(found.every((outcome) => outcome === "running"));
  t.is((await fixture.runtime.stats(apps)).size, apps.length);
});

rootTest("the daemon does not use a socket that another user put in place (root only)", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.userHelpers.createOwnedDir(app.runDir, app.uid);
  let received = 0;
  const server = createServer((socket) => socket.on("data", () => received++).on("error", () => undefined));
  const path = join(fixture.store, "root.sock");
  await once(server.listen(path), "listening");
  // Symlinks are not followed.
  await link(path, join(app.runDir, "supervisor.sock"));
  await t.throwsAsync(fixture.runtime.reattach(app), { message: /is of uid 0, not of 65534/ });
  t.is(received, 0);
  server.close();
});

test("pipes and floods in place of state and specification do not delay a stop", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  await fixture.runtime.stop(app);
  await rm(join(app.runDir, "spec.json"));
  const owner = await fixture.userHelpers.as(app.uid);
  t.is((await owner.runCommand(["mkfifo", "spec.json"], { cwd: app.runDir })).exitCode, 0);
  await truncate(join(app.runDir, "state.json"), 50_000_000);
  const startedMs = performance.now();
  await fixture.runtime.stop(app);
  t.true(performance.now() - startedMs < 10_000);
});

const hello = { type: "hello", protocol: { min: 1, max: 1 }, pid: process.pid, startTicks: 1 };
const running = { phase: "RUNNING", settled: true, supervisor: { pid: process.pid, startTicks: 1 } };
const impostors: Record<string, (socket: Socket) => void> = {
  "accepts the connection and sends nothing": () => undefined,
  "sends only a hello": (socket) => void socket.write(`${JSON.stringify(hello)}\n`),
  "sends a hello and disconnects": (socket) => void socket.end(`${JSON.stringify(hello)}\n`),
  "reports running and disconnects": (socket) => {
    const lines = [hello, { type: "state", state: running }].map((line) => JSON.stringify(line));
    socket.end(`${lines.join("\n")}\n`);
  },
};

for (const [name, speak] of Object.entries(impostors)) {
  test(`a false supervisor that ${name} delays neither the daemon nor a stop`, async (t) => {
    await using fixture = await createFixture();
    const uid = process.getuid?.() ?? 0;
    const app = await fixture.shell("exec sleep 1000", {}, uid);
    await fixture.userHelpers.createOwnedDir(app.runDir, uid);
    let connections = 0;
    const server = createServer((socket) => {
      connections++;
      socket.on("error", () => undefined);
      speak(socket);
    });
    await once(server.listen(join(app.runDir, "supervisor.sock")), "listening");
    // The call may be rejected or find that the app has exited, as long as it finishes.
    await fixture.runtime.reattach(app).catch(() => undefined);
    connections = 0;
    await sleep(1000);
    t.true(connections <= 20, `${connections} connections in a second`);
    await t.notThrowsAsync(fixture.runtime.stop(app));
    server.close();
  });
}

test("a run directory with a path longer than a socket address works", async (t) => {
  await using fixture = await createFixture();
  const short = await fixture.shell("exec sleep 1000");
  const app = { ...short, runDir: join(fixture.store, "run", "x".repeat(200)) };
  await fixture.runtime.start(app);
  t.is(fixture.runtime.status(app.id)?.state, "RUNNING");
  t.true((await readdir(app.runDir)).includes("supervisor.sock"));
  await fixture.runtime.stop(app);
});

test("a later version's supervisor is supported", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  const state = {
    ...(await readState(app)),
    color: "green",
    phase: "CRASHED",
    final: true,
    exits: [{ code: 4, more: 1 }],
  };
  await fixture.runtime.stop(app);
  await writeFile(join(app.runDir, "state.json"), JSON.stringify(state));
  await using next = new ProcessRuntime(runtimeOptions(fixture.userHelpers, state.bootId));
  t.is(await next.reattach(app), "ended");
  t.like(next.status(app.id), { state: "CRASHED", exitCode: 4 });
});

// A log reader that is slower than its app's exit gets all lines.

/** Longer than an exiting supervisor waits for its readers. */
const slowMs = 8_000;
/** All that fits into one log file, which is more than is read at once. */
const count = 42_000;
const filler = "x".repeat(200);

test("a slow reader gets every line when the app is stopped", async (t) => {
  t.timeout(120_000);
  await using fixture = await Fixture.create();
  const go = join(fixture.store, "go");
  const app = await fixture.shell(
    `echo begin; until [ -e ${go} ]; do sleep 0.1; done; ` +
      `i=0; while [ $i -lt ${count} ]; do echo "$i ${filler}"; i=$((i+1)); done; exec sleep 1000`,
  );
  await fixture.runtime.start(app);
  await fixture.outputUntil(app, "begin");
  const left = new AbortController();
  const seen: string[] = [];
  const follower = fixture.runtime.followLogs(app, { tail: 1, signal: left.signal });
  const first = await follower.next();
  t.is(first.done === true ? undefined : first.value.lines.at(-1)?.text, "begin");
  await writeFile(go, "");
  await eventually(
    "its last line",
    async () => (await fixture.output(app)).at(-1)?.startsWith(`${count - 1} `) ?? false,
    60_000,
  );
  await fixture.runtime.stop(app);
  await wait(slowMs);
  for await (const { lines, missedBytes } of follower) {
    t.is(missedBytes, 0);
    seen.push(...lines.filter(({ stream }) => stream === "stdout").map(({ text }) => text));
  }
  left.abort();
  t.deepEqual(
    seen.map((text) => Number(text.split(" ")[0])),
    Array.from({ length: count }, (_, at) => at),
  );
});

test("following ends when the app is removed", async (t) => {
  await using fixture = await Fixture.create();
  const app = await fixture.shell("echo one; exec sleep 1000");
  await fixture.runtime.start(app);
  const left = new AbortController();
  const follower = fixture.runtime.followLogs(app, { tail: 1, signal: left.signal });
  t.false((await follower.next()).done);
  await rm(join(app.runDir, "logs"), { recursive: true });
  const rest = Array.fromAsync(follower);
  await fixture.runtime.stop(app);
  await t.notThrowsAsync(rest);
});
