/** Supervisors of processes: restarts, membership, control groups, and their protocol. */
import { spawn, type ChildProcess, execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, rmdir, stat, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo, connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import { endProcesses } from "../../src/runtimes/process/ending.mjs";
import { Freezer } from "../../src/runtimes/process/freezing.mjs";
import { HealthCheck } from "../../src/runtimes/process/health-check.mjs";
import { RestartPolicy } from "../../src/runtimes/process/restart-policy.mjs";
import { findMembers } from "../../src/runtimes/process/run-members.mjs";
import { parseMessage, parseState } from "../../src/runtimes/process/supervisor-messages.ts";
import type { RestartSpec } from "../../src/runtimes/process/supervisor-types.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { Cgroups } from "../../src/sys/cgroup.ts";
import { parseStat, readProcess, type ProcessEntry } from "../../src/sys/process-table.mjs";
import { carriesCookie, runIdVariable } from "../../src/sys/run-cookie.mjs";
import { nextEvent, eventually } from "../support/eventually.ts";
import { programs } from "../support/programs.ts";
import { isRoot, Fixture } from "./support/fixture.ts";
import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import { ProcReader } from "../../src/sys/proc-reader.ts";
import { ProcessSampler } from "../../src/runtimes/process/process-sampler.ts";
import { membersOf, type SampledRun } from "../../src/sys/run-membership.ts";

const unifiedRoot = await firstWithKill(["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]);
const cgroupTest = isRoot && unifiedRoot !== undefined ? test : test.skip;

async function firstWithKill(mounts: readonly string[]): Promise<string | undefined> {
  for (const mount of mounts) {
    const readable = await readFile(`${mount}/cgroup.subtree_control`).catch(() => undefined);
    if (readable !== undefined) return mount;
  }
  return undefined;
}

const spec: RestartSpec = {
  policy: "always",
  backoffMs: 100,
  maxBackoffMs: 1000,
  maxRestarts: 6,
  resetAfterMs: 5000,
};
const failed = { code: 1, ranMs: 10 };

test("back-off doubles up to its limit, with jitter between half and all of it, until the retries are exhausted", (t) => {
  for (const [random, factor] of [
    [0, 0.5],
    [1, 1],
  ] as const) {
    const policy = new RestartPolicy(spec, () => random);
    const delays = Array.from({ length: 7 }, () => policy.next(failed));
    t.deepEqual(
      delays.slice(0, 6),
      [100, 200, 400, 800, 1000, 1000].map((delayMs) => ({ delayMs: Math.max(100, delayMs * factor) })),
    );
    t.like(delays[6], { failed: true });
  }
});

test("a restart without a delay waits for 100 ms", (t) => {
  const policy = new RestartPolicy({ ...spec, backoffMs: 0, maxBackoffMs: 0 });
  for (let restart = 0; restart < 3; restart++) t.deepEqual(policy.next(failed), { delayMs: 100 });
});

test("a long run resets the count; 0 restarts means unlimited", (t) => {
  const policy = new RestartPolicy({ ...spec, maxRestarts: 1 }, () => 1);
  t.deepEqual(policy.next(failed), { delayMs: 100 });
  t.deepEqual(policy.next({ code: 1, ranMs: 5000 }), { delayMs: 100 });
  t.like(policy.next(failed), { failed: true });
  const endless = new RestartPolicy({ ...spec, maxRestarts: 0 }, () => 1);
  for (let i = 0; i < 2000; i++) endless.next(failed);
  t.deepEqual(endless.next(failed), { delayMs: 1000 });
});

for (const [policy, code, ends] of [
  ["never", 0, { failed: false }],
  ["never", 1, { failed: true }],
  ["never", null, { failed: true }],
  ["on-failure", 0, { failed: false }],
  ["on-failure", 1, { delayMs: 100 }],
  ["on-failure", null, { delayMs: 100 }],
  ["always", 0, { delayMs: 100 }],
] as const) {
  test(`restart policy ${policy} after exit code ${String(code)}`, (t) => {
    t.like(new RestartPolicy({ ...spec, policy }, () => 1).next({ code, ranMs: 1 }), ends);
  });
}

test("a process may have any name", (t) => {
  fc.assert(
    fc.property(fc.string({ maxLength: 15 }), (name) => {
      const fields = Array.from({ length: 49 }, (_, index) => String(index + 4));
      const entry = parseStat(`77 (${name}) S ${fields.join(" ")}\n`);
      t.deepEqual(entry, {
        pid: 77,
        state: "S",
        ppid: 4,
        pgid: 5,
        sid: 6,
        cpuTicks: 29,
        startTicks: 22,
        rssPages: 24,
        isKernelThread: false,
        environmentEnd: 51,
      });
    }),
  );
  t.throws(() => parseStat("7 (a) S"), { message: /is not a line/ });
});

test("a cookie is a whole variable", (t) => {
  const has = (environ: string): boolean => carriesCookie(Buffer.from(environ), "r1");
  t.true(has("SVC_RUN_ID=r1\0A=b\0"));
  t.true(has("A=b\0SVC_RUN_ID=r1\0"));
  t.false(has("A=b\0SVC_RUN_ID=r12\0"));
  t.false(has("XSVC_RUN_ID=r1\0"));
  t.false(has("A=SVC_RUN_ID=r1\0"));
});

test("a process with the cookie is a member after any other variables, unless it is older than the run", async (t) => {
  const runId = randomUUID();
  const child = spawn("/bin/sh", ["-c", "echo; read end"], {
    env: { LARGE: "x".repeat(50_000), SVC_RUN_ID: runId },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  await nextEvent(child.stdout, "data");
  const startTicks = readProcess(child.pid ?? 0)?.startTicks ?? 0;
  const run = { runId, uid: process.getuid?.() ?? 0, sessions: new Set<number>(), exclude: process.pid };
  const found = [0, startTicks, startTicks + 1].map((since) => findMembers({ ...run, startTicks: since }));
  t.deepEqual(
    found.map((members) => members.map(({ pid }) => pid)),
    [[child.pid], [child.pid], []],
  );
  child.stdin.end();
  await exited;
});

test("invalid messages in place of a supervisor's are rejected or limited", (t) => {
  fc.assert(fc.property(fc.string(), (line) => t.is(parseMessage(line), undefined)));
  fc.assert(fc.property(fc.json(), (json) => t.is(parseState(json), undefined)));
  const state = parseState(
    JSON.stringify({
      phase: "RUNNING",
      supervisor: { pid: -1, startTicks: 1e300 },
      app: { pid: 1.5, startedAt: "yesterday" },
      reason: "x".repeat(1e6),
      exits: Array.from({ length: 50 }, () => ({
        code: 1e9,
        signal: "rm -rf",
        lastLines: Array(100).fill("y".repeat(1e4)),
      })),
      restarts: "many",
    }),
  );
  t.like(state, {
    supervisor: { pid: 0, startTicks: 0 },
    app: { pid: 0, startedAt: "1970-01-01T00:00:00.000Z" },
    restarts: 0,
  });
  t.is(state?.reason?.length, 4096);
  t.is(state?.exits.length, 10);
  t.like(state?.exits[0], { code: null, signal: null });
  t.is(state?.exits[0]?.lastLines.length, 20);
  t.is(state?.exits[0]?.lastLines[0]?.length, 1024);
  t.is(parseState('{"phase":"DANCING","supervisor":{}}'), undefined);
});

test("a range of the log that ends before it starts is not a valid message", (t) => {
  for (const type of ["log", "gap"]) {
    const message = { type, from: 5, to: 5, ...(type === "log" && { text: "" }) };
    t.deepEqual(parseMessage(JSON.stringify(message)), message as never);
    t.is(parseMessage(JSON.stringify({ ...message, to: 4 })), undefined, type);
    t.is(parseMessage(JSON.stringify({ ...message, to: 1e300 })), undefined, type);
  }
});

test("a supervisor's message may contain long text, but few elements", (t) => {
  const text = 'a\\"\u001b'.repeat(300_000);
  const log = { type: "log", from: 0, to: 1, text };
  t.deepEqual(parseMessage(JSON.stringify(log)), log);
  const junk = `[${"[],".repeat(30_000)}[]]`;
  t.is(parseMessage(`{"type":"log","from":0,"to":1,"text":"","junk":${junk}}`), undefined);
  t.is(
    parseMessage(`{"type":"gap","from":0,"to":1,"junk":${JSON.stringify(Array(30_000).fill(""))}}`),
    undefined,
  );
});

test("limits are written to the cgroup of the app", async (t) => {
  const root = await mkdtemp(join(tmpdir(), "svc-cgroup-"));
  t.teardown(() => rm(root, { recursive: true }));
  for (const path of ["", "apps", "apps/x", "apps/x/supervisor", "apps/x/app"]) {
    await mkdir(join(root, path), { recursive: true });
    await writeFile(join(root, path, "cgroup.controllers"), "cpuset cpu io memory pids\n");
    await writeFile(join(root, path, "cgroup.procs"), "");
  }
  const cgroups = new Cgroups({ root, controllers: new Set(["cpu", "memory", "pids"]) });
  t.deepEqual(cgroups.enforces, { memory: true, cpus: true });
  const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
  await cgroups.renew("x", { uid, gid }, { memoryBytes: 1e8, cpus: 1.5 });
  const path = join(root, "apps/x");
  t.is(cgroups.pathOf("x"), path);
  const read = (name: string): Promise<string> => readFile(join(path, name), "utf8");
  t.is(await read("cgroup.subtree_control"), "+cpu +memory +pids");
  t.is(await read("app/memory.max"), "100000000");
  t.is(await read("app/cpu.max"), "150000 100000");
  await t.throwsAsync(cgroups.enter(path, process.pid, uid + 1), { message: /is not one of uid/ });
  t.is(await read("supervisor/cgroup.procs"), "", "another user's process is not moved to the cgroup");
  await cgroups.enter(path, process.pid, uid);
  t.is(await read("supervisor/cgroup.procs"), String(process.pid));
  await cgroups.renew("x", { uid, gid }, {});
  t.is(await read("app/memory.max"), "max");
  await cgroups.renew("y", { uid, gid }, {});
  t.false(existsSync(join(root, "apps/y")), "a process that is not in a cgroup gets none");
});

cgroupTest("a cgroup kills processes that nothing else finds (root and cgroup v2 only)", async (t) => {
  const cgroup = `${unifiedRoot ?? ""}/svc-test-${process.pid}`;
  await mkdir(cgroup);
  const child = spawn(
    "/bin/sh",
    [
      "-c",
      'echo 0 > "$0/cgroup.procs"; (env -i setsid sleep 1000 &); echo; exec env -i setsid sleep 1000',
      cgroup,
    ],
    {
      stdio: ["ignore", "pipe", "ignore"],
    },
  );
  await nextEvent(child.stdout, "data");
  const run = { runId: "none", uid: 0, startTicks: 0, sessions: new Set<number>(), exclude: process.pid };
  t.is(await endProcesses(run, { signal: "SIGKILL", graceMs: 0, cgroup }), 0);
  t.is((await readFile(`${cgroup}/cgroup.procs`, "utf8")).trim(), "");
  await rmdir(cgroup);
});

test("processes that the last one leaves behind on a signal are killed, too", async (t) => {
  const runId = randomUUID();
  const late = `trap : TERM; echo $$; while :; do sleep 0.05; done`;
  const script = `trap 'setsid sh -c "$0" & exit 0' TERM; echo; while :; do sleep 0.05; done 2>/dev/null`;
  const child = spawn("/bin/sh", ["-c", script, late], {
    env: { PATH: process.env["PATH"], SVC_RUN_ID: runId },
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  const exited = once(child, "exit");
  await nextEvent(child.stdout, "data");
  const born = once(child.stdout, "data") as Promise<[Buffer]>;
  const run = {
    runId,
    uid: process.getuid?.() ?? 0,
    startTicks: 0,
    sessions: new Set([child.pid ?? 0]),
    exclude: process.pid,
  };
  const left = endProcesses(run, { signal: "SIGTERM", graceMs: 1_000 });
  const latePid = Number(String((await born)[0]));
  t.teardown(() => {
    if (readProcess(latePid) !== undefined) process.kill(latePid, "SIGKILL");
  });
  t.deepEqual(await exited, [0, null]);
  t.is(await left, 0);
  t.is(readProcess(latePid), undefined);
});

test("detection finds nothing if nothing was delegated", async (t) => {
  const procDir = await mkdtemp(join(tmpdir(), "svc-proc-"));
  t.teardown(() => rm(procDir, { recursive: true }));
  await mkdir(join(procDir, "self"));
  for (const [mounts, own] of [
    ["", "0::/"],
    ["35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/\n"],
    ["35 24 0:30 / /nonexistent rw - cgroup2 cgroup2 rw\n", "0::/a.service\n"],
    ["35 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "4:memory:/a\n"],
  ] as const) {
    await writeFile(join(procDir, "self/mountinfo"), mounts);
    await writeFile(join(procDir, "self/cgroup"), own);
    t.is(await Cgroups.detect({ procDir }), undefined);
  }
});

cgroupTest("processes hidden in a cgroup do not outlive the app (root and cgroup v2 only)", async (t) => {
  const root = `${unifiedRoot ?? ""}/svc-test-hidden-${process.pid}`;
  await mkdir(root);
  const cgroups = new Cgroups({ root, controllers: new Set() });
  t.teardown(async () => {
    await cgroups.end("x").catch(() => undefined);
    for (const path of [`${root}/apps`, root]) await rmdir(path);
  });
  const hide = async (place: string): Promise<ChildProcess> => {
    const command = 'echo 0 > "$0/cgroup.procs" && echo && exec env -i sleep 1000';
    const child = spawn("/bin/sh", ["-c", command, place], { stdio: ["ignore", "pipe", "inherit"] });
    await nextEvent(child.stdout, "data");
    return child;
  };
  const owner = { uid: 65_534, gid: 65_534 };
  for (const part of ["", "app", "supervisor"]) {
    const path = await cgroups.create("x", owner, {});
    const child = await hide(join(path, part));
    const ended = nextEvent(child, "exit");
    t.false(await cgroups.remove("x"), "a stop leaves it there");
    // Another user's app gets the ID.
    await cgroups.create("x", { uid: 1, gid: 1 }, {});
    t.deepEqual(await ended, [null, "SIGKILL"], part);
    t.is((await stat(`${path}/app/cgroup.freeze`)).uid, 1);
    const last = await hide(join(path, part));
    await Promise.all([nextEvent(last, "exit"), cgroups.end("x")]);
    t.false(existsSync(path));
  }
});

cgroupTest("a cgroup freezes processes that nothing else finds (root and cgroup v2 only)", async (t) => {
  const cgroup = `${unifiedRoot ?? ""}/svc-test-freeze-${process.pid}`;
  await mkdir(cgroup);
  const loop = 'echo 0 > "$0/cgroup.procs"; echo; exec env -i setsid sh -c "while :; do :; done"';
  const child = spawn("/bin/sh", ["-c", loop, cgroup], { stdio: ["ignore", "pipe", "inherit"] });
  await nextEvent(child.stdout, "data");
  const run = {
    runId: "no such run",
    uid: 0,
    startTicks: 0,
    sessions: new Set<number>(),
    exclude: process.pid,
  };
  const events = (): Promise<string> => readFile(`${cgroup}/cgroup.events`, "utf8");
  const freezer = new Freezer(run, cgroup);
  await freezer.freeze();
  t.regex(await events(), /^frozen 1$/m);
  freezer.thaw();
  await freezer.thawed;
  t.regex(await events(), /^frozen 0$/m);
  await freezer.freeze();
  t.is(await endProcesses(run, { signal: "SIGTERM", graceMs: 10_000, cgroup }), 0);
  t.is(child.signalCode ?? (await nextEvent(child, "exit"))[1], "SIGTERM", "it received the signal");
  await rmdir(cgroup);
});

test("a paused app is not judged by a probe that was in progress", async (t) => {
  let answers = true;
  const [asked, gaveUp] = [new EventEmitter(), new EventEmitter()];
  await using server = createServer((socket) => {
    socket.on("error", () => undefined).resume();
    socket.once("close", () => gaveUp.emit("now"));
    if (answers) socket.end("HTTP/1.1 200 OK\r\n\r\n");
    asked.emit("now");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const health = {
    http: { port, path: "/" },
    ...{ intervalMs: 20, timeoutMs: 100, retries: 1, startPeriodMs: 0 },
  };
  const states: string[] = [];
  const changes = new EventEmitter();
  const check = new HealthCheck({ cwd: "/", env: {}, runId: "" }, health, (state) => {
    states.push(state);
    changes.emit("now");
  });
  try {
    await once(changes, "now");
    answers = false;
    await once(asked, "now");
    check.hold();
    await once(gaveUp, "now");
    answers = true;
    check.release();
    await once(asked, "now");
    await once(gaveUp, "now");
    t.deepEqual(states, ["healthy"]);
    answers = false;
    await once(changes, "now");
    t.deepEqual(states, ["healthy", "unhealthy"], "it is probed again");
  } finally {
    check.stop();
  }
});

type Message = Record<string, unknown>;

/** Sends messages to a supervisor directly. */
function dial(app: RunnableApp) {
  const socket = connect(join(app.runDir, "supervisor.sock"));
  const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
  const read = async (): Promise<Message> => JSON.parse((await lines.next()).value ?? "null") as Message;
  const ask = async (request: unknown): Promise<Message> => {
    socket.write(`${typeof request === "string" ? request : JSON.stringify(request)}\n`);
    return read();
  };
  return { read, ask, [Symbol.dispose]: () => void socket.destroy() };
}

test("a supervisor identifies itself, handles known requests and rejects others", async (t) => {
  await using fixture = await Fixture.create();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  using supervisor = dial(app);
  t.like(await supervisor.read(), {
    type: "hello",
    protocol: { min: 1, max: 1 },
    svcVersion: "0.0.0-test",
    appId: app.id,
  });
  for (const [request, answer] of [
    [
      { id: 1, protocol: 1, cmd: "resize", unknown: true },
      { id: 1, ok: true },
    ],
    [
      { id: 2, protocol: 1, cmd: "dance" },
      { id: 2, ok: false, error: "unknown command" },
    ],
    [
      { id: 3, protocol: 9, cmd: "resize" },
      { id: 3, ok: false, error: "protocol 9 is not supported" },
    ],
    ["no json", { id: 0, ok: false }],
    ["null", { id: 0, ok: false }],
    [
      { id: 4, protocol: 1, cmd: "resize" },
      { id: 4, ok: true },
    ],
  ] as const) {
    t.like(await supervisor.ask(request), { type: "reply", ...answer }, JSON.stringify(request));
  }
});

test("an endless request is cut off, and the app keeps running", async (t) => {
  await using fixture = await Fixture.create();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  const socket = connect(join(app.runDir, "supervisor.sock"));
  socket.on("error", () => undefined).resume();
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.write("x".repeat(1_000_000));
  await closed;
  t.is(fixture.runtime.status(app.id)?.state, "RUNNING");
});

test("a second supervisor leaves the app to the existing one", async (t) => {
  await using fixture = await Fixture.create();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  const [before] = fixture.runtime.runs();
  // It exits by itself, because it waits for nothing.
  await promisify(execFile)(process.execPath, [programs.supervisor], { cwd: app.runDir, timeout: 60_000 });
  using supervisor = dial(app);
  t.like(await supervisor.read(), { type: "hello", pid: before?.supervisorPid });
  t.like(fixture.runtime.status(app.id), { state: "RUNNING", restarts: 0 });
});

const hourMs = 3_600_000;
const uid = process.getuid?.() ?? 0;

/** Counts how often the process table is read. */
class CountingReader extends ProcReader {
  tables = 0;
  atOnce = 0;
  mostAtOnce = 0;

  override async readTable(signal: AbortSignal): Promise<ProcessEntry[]> {
    this.tables++;
    this.mostAtOnce = Math.max(this.mostAtOnce, ++this.atOnce);
    try {
      return await super.readTable(signal);
    } finally {
      this.atOnce--;
    }
  }
}

/** A run with one process in its own session. */
async function startRun(t: ExecutionContext, appId: string): Promise<Required<SampledRun>> {
  const runId = `run-of-${appId}`;
  const env = { ...process.env, [runIdVariable]: runId };
  const child = spawn("sleep", ["1000"], { detached: true, stdio: "ignore", env });
  await once(child, "spawn");
  // The next test's run has the same name.
  const gone = once(child, "exit");
  t.teardown(() => {
    child.kill("SIGKILL");
    return gone;
  });
  return { appId, ownerUid: uid, runId, pid: child.pid ?? 0 };
}

test("an app whose owner claims another user's session does not see its usage", async (t) => {
  const honest = await startRun(t, "honest");
  const thief = { ...honest, appId: "thief", ownerUid: uid + 1, runId: "b" };
  // A later caller must not get it either.
  for (const asked of [
    [honest, thief],
    [thief, honest],
  ]) {
    const usage = await new ProcessSampler({ windowMs: 10 }).sample(asked);
    t.is(usage.get("honest")?.processes, 1);
    t.is(usage.get("thief"), undefined);
  }
});

test("an app whose owner claims another user's run does not see it while the other user does", async (t) => {
  const sampler = new ProcessSampler({ windowMs: 10 });
  const honest = await startRun(t, "honest");
  const { pid: _, ...rest } = honest;
  const thief = { ...rest, appId: "thief", ownerUid: uid + 1 };
  const [shown, stolen] = await Promise.all([sampler.sample([honest]), sampler.sample([thief])]);
  t.is(shown.get("honest")?.processes, 1);
  t.is(stolen.size, 0);
  t.is((await sampler.sample([thief])).size, 0, "and also not later, when the cookie is known");
});

test("a process with the cookie of another owner's run counts for neither owner", async (t) => {
  const entry = parseStat(await readFile("/proc/self/stat", "latin1"));
  const runs = [1, 2].map((ownerUid) => ({ appId: `of-${ownerUid}`, ownerUid, runId: `run-${ownerUid}` }));
  const members = (runId: string) => membersOf(runs, [entry], new Map([[entry.pid, { uid: 1, runId }]]));
  t.deepEqual([...members("run-1").keys()], ["of-1"]);
  t.deepEqual([...members("run-2").keys()], []);
});

test("without runs nothing is read", async (t) => {
  const reader = new CountingReader();
  t.is((await new ProcessSampler({ reader, windowMs: hourMs }).sample([])).size, 0);
  t.is(reader.tables, 0);
});

test("a hundred concurrent callers share the samples, and each sees only its own runs", async (t) => {
  const reader = new CountingReader();
  const sampler = new ProcessSampler({ reader, windowMs: 10 });
  const runs = [await startRun(t, "a"), await startRun(t, "b"), await startRun(t, "c")];
  const asked = Array.from({ length: 50 }, (_, n) => runs.filter((_, bit) => ((n % 7) + 1) & (1 << bit)));
  const first = asked.map((some) => sampler.sample(some));
  await turn();
  t.is(reader.atOnce, 1, "the first sample is in progress");
  const second = asked.map((some) => sampler.sample(some));
  const shown = await Promise.all([...first, ...second]);
  for (const [n, usage] of shown.entries()) {
    const subset = asked[n % asked.length] ?? [];
    t.deepEqual(
      [...usage].map(([id, { processes }]) => [id, processes]).sort(),
      subset.map(({ appId }) => [appId, 1]),
    );
  }
  t.is(reader.tables, 2);
  t.is(reader.mostAtOnce, 1);
});

test("a caller that disconnects returns at once, and a sample without callers makes place for the next", async (t) => {
  const reader = new CountingReader();
  const sampler = new ProcessSampler({ reader, windowMs: hourMs });
  const run = await startRun(t, "a");
  for (const round of [1, 2, 3]) {
    const leaver = new AbortController();
    const samples = Array.from({ length: 10 }, () => sampler.sample([run], leaver.signal));
    const left = Promise.allSettled(samples);
    await eventually(() => assert.equal(reader.tables, round));
    // In the second round while the table is read, otherwise in the window.
    if (round !== 2) await eventually(() => assert.equal(reader.atOnce, 0));
    const reason = new Error("left");
    leaver.abort(reason);
    for (const result of await left) t.like(result, { status: "rejected", reason });
  }
  t.is(reader.mostAtOnce, 1);
});

test("the event loop is not blocked while many processes are read, and none is read after the signal aborts", async (t) => {
  const procDir = await mkdtemp(join(tmpdir(), "svc-proc-"));
  t.teardown(() => rm(procDir, { recursive: true }));
  const line = await readFile("/proc/self/stat", "latin1");
  const entries = Array.from({ length: 100 }, (_, index) => ({ ...parseStat(line), pid: 1000 + index }));
  for (const { pid } of entries) {
    await mkdir(join(procDir, String(pid)));
    await writeFile(join(procDir, String(pid), "stat"), line);
  }
  const reader = new ProcReader(procDir);
  t.is((await reader.readAgain(entries, new AbortController().signal)).size, 100);
  const aborter = new AbortController();
  const reading = reader.readAgain(entries, aborter.signal);
  aborter.abort();
  const { size } = await reading;
  t.true(size > 0 && size < 50, `${size} were read at once`);
});
