import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { SvcError } from "../../src/errors.ts";
import type { LogRecord } from "../../src/logs/log-chunk.ts";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { describeSpawnFailure, missingProgram } from "../../src/runtimes/process/spawn-failure.mjs";
import { readProcess } from "../../src/sys/process-table.mjs";
import { nextEvent } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { processesIn } from "../support/processes.ts";
import { programs } from "../support/programs.ts";
import { eventually, Fixture, pidsRunning, uniqueSleep } from "./support/fixture.ts";
import { sharedFixtures } from "./support/shared-fixture.ts";

const createFixture = sharedFixtures();

test("an app that was never started has no output", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("exec sleep 1000");
  await mkdir(app.runDir, { recursive: true });
  const nothing = { lines: [], truncated: false, missedBytes: 0 };
  t.deepEqual(await fixture.runtime.logs(app, { tail: 10 }), nothing);
  const { signal } = new AbortController();
  const followed = await Array.fromAsync(fixture.runtime.followLogs(app, { tail: 10, signal }));
  t.deepEqual(followed, [{ ...nothing, offset: 0 }]);
});

test("an app runs, is listed, logs both streams and stops", async (t) => {
  await using fixture = await createFixture();
  const { runtime } = fixture;
  const app = await fixture.shell("echo to out; echo to err >&2; exec sleep 1000");
  t.is(runtime.status(app.id), undefined);
  await runtime.start(app);
  t.like(runtime.status(app.id), { state: "RUNNING", restarts: 0, health: "none", reason: "" });
  await runtime.start(app);
  t.deepEqual(await fixture.output(app), ["to out"]);
  t.deepEqual(await fixture.output(app, "stderr"), ["to err"]);
  const usage = (await runtime.stats([app])).get(app.id);
  t.is(usage?.processes, 1);
  t.true((usage?.memoryBytes ?? 0) > 10_000);
  await runtime.stop(app);
  t.like(runtime.status(app.id), {
    state: "STOPPED",
    exitSignal: "SIGTERM",
    lastLines: ["to out", "to err"],
  });
  await runtime.stop(app);
  t.is((await runtime.stats([app])).size, 0);
  t.deepEqual(await fixture.output(app), ["to out"]);
});

test("an app may reopen /dev/stdout and /dev/stderr", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("echo out > /dev/stdout; echo err > /dev/stderr; exec sleep 1000");
  await fixture.runtime.start(app);
  t.deepEqual(await fixture.output(app), ["out"]);
  t.deepEqual(await fixture.output(app, "stderr"), ["err"]);
});

test("a supervisor needs no system program to start an app", async (t) => {
  await using userHelpers = createUserHelpers({
    helperPath: programs.userHelper,
    searchPath: "/nonexistent",
  });
  await using fixture = await Fixture.create({ userHelpers });
  const app = await fixture.shell("echo out; exec sleep 1000");
  await fixture.runtime.start(app);
  t.deepEqual(await fixture.output(app), ["out"]);
});

const failures = [
  {
    title: "a program that does not exist",
    argv: ["/nonexistent/program"],
    payload: { signal: "" },
    message: /did not start: program "\/nonexistent\/program" was not found$/,
  },
  {
    title: "a program that no directory of PATH has",
    argv: ["nosuchprogram"],
    payload: { signal: "" },
    message: /did not start: program "nosuchprogram" was not found in PATH$/,
  },
  {
    title: "a file that is not executable",
    argv: ["/etc/passwd"],
    payload: { signal: "" },
    message: /did not start: program "\/etc\/passwd" is not executable$/,
  },
  {
    title: "an exit code",
    argv: ["/bin/sh", "-c", "echo no port; exit 3"],
    payload: { exitCode: 3, signal: "", lastLines: ["no port"] },
    message: /exited with code 3/,
  },
  {
    title: "a signal",
    argv: ["/bin/sh", "-c", "kill -SEGV $$"],
    payload: { signal: "SIGSEGV", lastLines: [] },
    message: /SIGSEGV/,
  },
];
for (const argv of [["nosuchprogram"], ["./nosuchprogram"]]) {
  test(`an execution error is reported in the same words by the launcher: ${argv.join(" ")}`, async (t) => {
    await using fixture = await createFixture();
    const app = await fixture.app(argv, { limits: { openFiles: 77 } });
    const message = /did not start: program "(\.\/)?nosuchprogram" was not found( in PATH)?$/;
    const error = await t.throwsAsync<SvcError<"start_failed">>(fixture.runtime.start(app), { message });
    t.deepEqual(error.payload?.lastLines, []);
  });
}
for (const { title, argv, payload, message } of failures) {
  test(`a start that fails at once reports why: ${title}`, async (t) => {
    await using fixture = await createFixture();
    const app = await fixture.app(argv, {
      restart: { policy: "always", delayMs: 1, maxDelayMs: 1, maxAttempts: 0, resetAfterMs: 1 },
    });
    const error = await t.throwsAsync<SvcError<"start_failed">>(fixture.runtime.start(app), {
      instanceOf: SvcError,
      message,
    });
    t.is(error.reason, "start_failed");
    t.like(error.payload, payload);
    t.is(fixture.runtime.status(app.id)?.state, "FAILED");
  });
}

test("an app that keeps failing is restarted with back-off until the retries are exhausted", async (t) => {
  await using fixture = await createFixture();
  const restart = {
    policy: "on-failure",
    delayMs: 20,
    maxDelayMs: 40,
    maxAttempts: 2,
    resetAfterMs: 60_000,
  } as const;
  const app = await fixture.shell("echo run; sleep 0.3; exit 7", { restart });
  const changes: string[] = [];
  fixture.runtime.onChange((id) => changes.push(`${id} ${fixture.runtime.status(id)?.state ?? ""}`));
  await fixture.runtime.start(app);
  await eventually("crash", () => fixture.runtime.status(app.id)?.state === "CRASHED");
  t.like(fixture.runtime.status(app.id), { restarts: 2, exitCode: 7, lastLines: ["run"] });
  t.deepEqual(await fixture.output(app), ["run", "run", "run"]);
  await eventually("the final event", () => changes.includes(`${app.id} CRASHED`));
  await fixture.runtime.start(app);
  // On a busy host it may have exited again by now.
  t.regex(fixture.runtime.status(app.id)?.state ?? "", /^(RUNNING|STARTING)$/);
});

test("an app that exits with 0 under on-failure has stopped", async (t) => {
  await using fixture = await createFixture();
  const restart = {
    policy: "on-failure",
    delayMs: 20,
    maxDelayMs: 40,
    maxAttempts: 2,
    resetAfterMs: 60_000,
  } as const;
  const app = await fixture.shell("sleep 0.3", { restart });
  await fixture.runtime.start(app);
  await eventually("stop", () => fixture.runtime.status(app.id)?.state === "STOPPED");
  t.like(fixture.runtime.status(app.id), { exitCode: 0, restarts: 0 });
});

test("stop kills every process: double fork, setsid, ignored signals", async (t) => {
  await using fixture = await createFixture();
  const marker = uniqueSleep();
  const script = `
    (setsid sh -c 'sleep ${marker} & sleep ${marker} &' &)
    sh -c 'trap "" TERM; sleep ${marker}' &
    (env -i setsid sleep ${marker} &)
    exec sleep ${marker}`;
  const app = await fixture.shell(script, { stop: { signal: "SIGTERM", graceMs: 300 } });
  await fixture.runtime.start(app);
  await eventually("all of them", async () => (await pidsRunning(marker)).length >= 5 || undefined);
  t.true(((await fixture.runtime.stats([app])).get(app.id)?.processes ?? 0) >= 4);
  await fixture.runtime.stop(app);
  const left = await pidsRunning(marker);
  // Unreachable without a cgroup: it left session, parent and environment.
  for (const pid of left) process.kill(pid, "SIGKILL");
  t.true(left.length <= 1, `${left.length} processes are left`);
});

test("a frozen app executes nothing; a resumed one continues, except processes that were stopped before", async (t) => {
  await using fixture = await createFixture();
  const { runtime } = fixture;
  // The script starts processes constantly, some of them in their own sessions.
  const script = `
    sh -c 'kill -STOP $$' &
    (setsid sh -c 'while :; do (setsid true); echo >> "$SVC_DATA_DIR/apart"; done' &)
    while :; do sh -c 'true'; echo >> "$SVC_DATA_DIR/main"; done`;
  const app = await fixture.shell(script);
  const statesNow = async (): Promise<string[]> => {
    const pids = processesIn(app.directory);
    return pids.flatMap((pid) => readProcess(pid)?.state ?? []);
  };
  const sizes = (): Promise<number[]> =>
    Promise.all(
      ["main", "apart"].map(
        async (name) => (await stat(join(app.directory, "data", name)).catch(() => undefined))?.size ?? 0,
      ),
    );
  await runtime.start(app);
  await eventually("both write", async () => !(await sizes()).includes(0));
  for (let round = 0; round < 10; round++) {
    await runtime.freeze(app);
    const states = await statesNow();
    t.true(states.length >= 3 && states.every((state) => "TD".includes(state)), states.join());
    const frozen = await sizes();
    await eventually(
      "it is reported",
      () => runtime.status(app.id)?.reason === "the app is paused" || undefined,
    );
    t.is(runtime.status(app.id)?.state, "RUNNING");
    t.deepEqual(await runtime.freezable(app), [app.id]);
    await t.throwsAsync(runtime.freeze(app), { message: /already frozen/ });
    t.deepEqual([await statesNow(), await sizes()], [states, frozen]);
    t.true(await runtime.thaw(app));
    const goesOn = async (): Promise<boolean> =>
      (await sizes()).every((size, at) => size > (frozen[at] ?? 0));
    await eventually("both continue", async () => (await goesOn()) || undefined);
    t.true((await statesNow()).includes("T"), "a process that stopped itself stays stopped");
    t.is(runtime.status(app.id)?.reason, "");
  }
  t.false(await runtime.thaw(app), "nothing was frozen");
  await runtime.freeze(app);
  await runtime.stop(app);
  t.deepEqual(await statesNow(), []);
});

test("leftover processes of the main process are killed before it is restarted", async (t) => {
  await using fixture = await createFixture();
  const marker = uniqueSleep();
  const app = await fixture.shell(`sleep ${marker} & sleep 0.3; exit 1`, {
    stop: { signal: "SIGTERM", graceMs: 300 },
  });
  await fixture.runtime.start(app);
  await eventually("crash", () => fixture.runtime.status(app.id)?.state === "CRASHED");
  t.deepEqual(await pidsRunning(marker), []);
});

test("following returns the tail and new lines without loss or repetition, until the app exits", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell(
    "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; [ $((i%50)) = 0 ] && sleep 0.1; done",
  );
  await fixture.runtime.start(app);
  const lines: LogRecord[] = [];
  const { signal } = new AbortController();
  for await (const chunk of fixture.runtime.followLogs(app, { tail: 10, signal })) lines.push(...chunk.lines);
  const numbers = lines.filter(({ stream }) => stream === "stdout").map(({ text }) => Number(text.slice(5)));
  const first = numbers[0] ?? 0;
  t.true(first > 1);
  t.is(numbers.at(-1), 400);
  t.deepEqual(
    numbers,
    Array.from({ length: 401 - first }, (_, index) => first + index),
  );
});

test("a follower that disconnects is released", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("while true; do echo x; sleep 0.01; done");
  await fixture.runtime.start(app);
  const abort = new AbortController();
  let seen = 0;
  for await (const { lines } of fixture.runtime.followLogs(app, { tail: 1, signal: abort.signal })) {
    seen += lines.length;
    if (seen > 20) abort.abort();
  }
  t.true(seen > 20);
  t.is(fixture.runtime.status(app.id)?.state, "RUNNING");
});

/** A web server that responds with the status in a file, and releases its port while that is 0. */
function statusServer(port: number, file: string): string {
  const script = `
    const server = require("node:http").createServer((request, response) => response.writeHead(status() || 503).end());
    const status = () => Number(require("node:fs").readFileSync(${JSON.stringify(file)}, "utf8"));
    setInterval(() => (status() === 0 ? server.close() : server.listening || server.listen(${port}, "127.0.0.1")), 20);
    server.on("error", () => undefined);`;
  return `exec "${process.execPath}" -e '${script}'`;
}

const quickHealth = {
  probe: { kind: "http", port: "web", path: "/up" },
  startPeriodMs: 60_000,
  intervalMs: 30,
  timeoutMs: 5_000,
  retries: 2,
} as const;

async function statusFile(t: ExecutionContext, status: number): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-status-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await chmod(dir, 0o755);
  const file = join(dir, "status");
  await writeFile(file, String(status));
  return file;
}

test("health: starting, healthy, unhealthy; waiting for it", async (t) => {
  await using fixture = await createFixture();
  const port = await freePort();
  const file = await statusFile(t, 500);
  const app = await fixture.shell(statusServer(port, file), {
    ports: [{ name: "web", protocol: "tcp", default: port }],
    health: quickHealth,
  });
  await fixture.runtime.start(app);
  t.is(fixture.runtime.status(app.id)?.health, "starting");
  await t.throwsAsync(fixture.runtime.waitHealthy(app.id, 200), { message: /longer than 200 ms/ });
  await eventually("reason", () => fixture.runtime.status(app.id)?.healthReason?.includes("500") === true);
  await writeFile(file, "204");
  await fixture.runtime.waitHealthy(app.id, 10_000);
  t.like(fixture.runtime.status(app.id), { health: "healthy", healthReason: undefined });
  await writeFile(file, "503");
  await eventually("unhealthy", () => fixture.runtime.status(app.id)?.health === "unhealthy");
  await t.throwsAsync(fixture.runtime.waitHealthy(app.id, 1000), {
    message: /health check fails: GET \/up returned status 503/,
  });
});

test("an app that ignores its port is unhealthy, and the reason names the port at which it listens", async (t) => {
  await using fixture = await createFixture();
  const [port, other] = [await freePort(), await freePort()];
  const app = await fixture.shell(statusServer(other, await statusFile(t, 200)), {
    ports: [{ name: "web", protocol: "tcp", default: port }],
    health: { ...quickHealth, startPeriodMs: 0 },
  });
  await fixture.runtime.start(app);
  const reason = `nothing listens on port ${port}; the app listens on ${other} instead`;
  await eventually("reason", () => fixture.runtime.status(app.id)?.healthReason === reason);
  t.is(fixture.runtime.status(app.id)?.health, "unhealthy");
});

test("another process's response on the app's port is not the app's health", async (t) => {
  await using fixture = await createFixture();
  const foreign = createServer((_, response) => response.end());
  await once(foreign.listen(0, "127.0.0.1"), "listening");
  const { port } = foreign.address() as AddressInfo;
  t.teardown(() => foreign.close());
  const taken = new RegExp(`^port ${port} is in use by (process ${process.pid} \\(|a process of root)`);
  const status = () => fixture.runtime.status(app.id);
  const file = await statusFile(t, 200);
  const app = await fixture.shell(statusServer(port, file), {
    ports: [{ name: "web", protocol: "tcp", default: port }],
    health: { ...quickHealth, startPeriodMs: 0 },
  });
  // First the other process, then the app, then the other process again.
  await fixture.runtime.start(app);
  await eventually("unhealthy", () => status()?.health === "unhealthy");
  t.regex(status()?.healthReason ?? "", taken);
  foreign.close();
  foreign.closeAllConnections();
  await eventually("healthy", () => status()?.health === "healthy");
  await writeFile(file, "0");
  await eventually("gone", () => status()?.health === "unhealthy");
  await once(foreign.listen(port, "127.0.0.1"), "listening");
  await eventually("taken", () => taken.test(status()?.healthReason ?? ""));
  t.is(status()?.health, "unhealthy");
  foreign.close();
});

for (const [title, argv, expected] of [
  ["exec that passes", ["/bin/true"], "healthy"],
  ["exec that fails", ["/bin/false"], "unhealthy"],
  ["exec that hangs", ["/bin/sleep", "1000"], "unhealthy"],
  ["exec that does not exist", ["/nonexistent"], "unhealthy"],
] as const) {
  test(`health probe: ${title}`, async (t) => {
    await using fixture = await createFixture();
    const app = await fixture.shell("exec sleep 1000", {
      health: {
        probe: { kind: "exec", argv: [...argv] },
        startPeriodMs: 0,
        intervalMs: 20,
        timeoutMs: 100,
        retries: 1,
      },
    });
    await fixture.runtime.start(app);
    await eventually(expected, () => fixture.runtime.status(app.id)?.health === expected);
    t.pass();
  });
}

test("limits: open files are limited, memory needs a cgroup", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("ulimit -n; exec sleep 1000", {
    limits: { openFiles: 77, memoryBytes: 1e8 },
  });
  await fixture.runtime.start(app);
  t.deepEqual(await fixture.output(app), ["77"]);
  t.deepEqual(fixture.runtime.limits(app), [
    { name: "memory", enforced: false, value: 1e8 },
    { name: "open_files", enforced: true, value: 77 },
  ]);
});

test("stats distinguish a busy app from an idle one in one window", async (t) => {
  await using fixture = await createFixture();
  const busy = await fixture.shell("while :; do :; done");
  const idle = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(busy);
  await fixture.runtime.start(idle);
  const startedMs = performance.now();
  const usage = await fixture.runtime.stats([busy, idle]);
  t.true(performance.now() - startedMs < 10_000);
  t.is(usage.get(idle.id)?.cpuPercent, 0);
  t.true((usage.get(busy.id)?.cpuPercent ?? 0) > 0);
});

// The actual cause of an errno that has several meanings.

const cases: { title: string; program: string; cwd?: string; expected: RegExp }[] = [
  {
    title: "not in PATH",
    program: "nosuchprogram",
    expected: /^program "nosuchprogram" was not found in PATH$/,
  },
  { title: "not there", program: "./nothing", expected: /^program "\.\/nothing" was not found$/ },
  { title: "not executable", program: "./plain", expected: /^program "\.\/plain" is not executable$/ },
  {
    title: "a script without its interpreter",
    program: "./script",
    expected: /^program "\.\/script" cannot be run: the interpreter that it names was not found$/,
  },
  {
    title: "a working directory that is gone",
    program: "sh",
    cwd: "gone",
    expected: /^program "sh" cannot be run: its working directory ".*\/gone" cannot be entered$/,
  },
  { title: "anything else", program: "./" + "x".repeat(300), expected: /cannot be run: .*ENAMETOOLONG/ },
];

for (const { title, program, cwd = ".", expected } of cases) {
  test(`a program that cannot be run reports why: ${title}`, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-spawn-"));
    t.teardown(() => rm(dir, { recursive: true }));
    await writeFile(join(dir, "plain"), "#!/bin/sh\n", { mode: 0o644 });
    await writeFile(join(dir, "script"), "#!/nonexistent/interpreter\n", { mode: 0o755 });
    const workingDir = join(dir, cwd);
    const error = await spawnError(program, workingDir);
    t.regex(describeSpawnFailure(error, program, workingDir), expected);
  });
}

test("a missing program is detected before it is started", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-spawn-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await writeFile(join(dir, "plain"), "");
  const missing = (program: string, path?: string): string | undefined =>
    missingProgram({ argv: [program], cwd: dir, env: path === undefined ? {} : { PATH: path } });
  for (const [program, path] of [
    ["./plain", "/usr/bin"],
    ["plain", `/nonexistent:${dir}`],
    ["plain", "/nonexistent:"],
    ["plain", undefined],
  ] as const)
    t.is(missing(program, path), undefined, `${program} in ${path ?? "no PATH"}`);
  t.is(missing("plain", "/usr/bin"), 'program "plain" was not found in PATH');
  t.is(missing("./none", "/usr/bin"), 'program "./none" was not found');
});

/** Some errors are thrown, others come later. */
async function spawnError(program: string, cwd: string): Promise<NodeJS.ErrnoException> {
  try {
    const [error] = (await nextEvent(spawn(program, { cwd }), "error")) as [NodeJS.ErrnoException];
    return error;
  } catch (error) {
    return error as NodeJS.ErrnoException;
  }
}
