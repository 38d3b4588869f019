/** Actions of jobs on apps, and commands in a shell. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as wait } from "node:timers/promises";
import { promisify } from "node:util";
import test from "ava";
import type { AppCaller } from "../../../src/apps/records/app-registry.ts";
import type { Backups } from "../../../src/backups/backups.ts";
import { SvcError } from "../../../src/errors.ts";
import { HostReboot } from "../../../src/host/reboot.ts";
import { Limiter } from "../../../src/lib/limiter.ts";
import { type UserHelpers, createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import { createUsers } from "../../../src/run-as/user.ts";
import type { Action } from "../../../src/scheduler/actions/action.ts";
import {
  type LifecycleActionOptions,
  type LifecycleVerb,
  createLifecycleAction,
} from "../../../src/scheduler/actions/app-lifecycle.ts";
import {
  type AppUpdateActionOptions,
  createAppUpdateAction,
} from "../../../src/scheduler/actions/app-update.ts";
import { createBackupAction } from "../../../src/scheduler/actions/backup.ts";
import { createNodeRebootAction } from "../../../src/scheduler/actions/node-reboot.ts";
import { createShellAction, startBounds } from "../../../src/scheduler/actions/shell.ts";
import { isAlive } from "../../run-as/support/world.ts";
import { isRoot, needsRoot } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { type ActOptions, act } from "../support/act.ts";

// Calls of app actions and their callers; real apps are in the end-to-end tests.

interface FakeOptions {
  fail?: Readonly<Partial<Record<string, Error>>>;
  upToDate?: boolean;
  /** The newest version. */
  to?: string;
  hang?: string;
}

/** Apps that record the requests. */
function fakeApps({ fail = {}, upToDate = false, to = "2.0", hang }: FakeOptions = {}) {
  const asked: string[] = [];
  const callers: AppCaller[] = [];
  const find = (id: string, caller: AppCaller) => {
    callers.push(caller);
    return Promise.resolve({ id });
  };
  const does =
    (verb: string) =>
    ({ id }: { id: string }) => {
      asked.push(`${verb} ${id}`);
      if (hang === verb) return new Promise<never>(() => undefined);
      const error = fail[verb];
      return error === undefined ? Promise.resolve({}) : Promise.reject(error);
    };
  const apps = {
    finder: { find, any: find },
    lifecycle: { start: does("start"), stop: does("stop"), restart: does("restart") },
    upgrader: {
      upgrade: ({ id }: { id: string }, { stopApp }: { stopApp: boolean }) =>
        does("upgrade")({ id: stopApp ? `${id} stopped for it` : id }).then(() => ({
          upToDate,
          from: "1.0",
          to: upToDate ? "1.0" : to,
        })),
    },
  };
  return { asked, callers, apps: apps as unknown as LifecycleActionOptions & AppUpdateActionOptions };
}

for (const [verb, type] of [
  ["start", "app_start"],
  ["stop", "app_stop"],
  ["restart", "app_restart"],
] as const satisfies [LifecycleVerb, string][]) {
  for (const [who, options, root] of [
    ["root", {}, true],
    ["a user", { ownerUid: 1000, isRoot: false }, false],
  ] as [string, ActOptions, boolean][]) {
    test(`${type} as ${who}`, async (t) => {
      const { apps, asked, callers } = fakeApps();
      t.deepEqual(await act(createLifecycleAction(apps, verb), { type, app: "a" }, options), { output: "" });
      t.deepEqual(asked, [`${verb} a`]);
      const uid = options.ownerUid ?? 0;
      t.deepEqual(callers, [{ uid, root, ownerUid: uid }]);
    });
  }
}

test("a continuing operation does not delay a canceled run", async (t) => {
  const { apps } = fakeApps({ hang: "stop" });
  const stop = new AbortController();
  const running = act(
    createLifecycleAction(apps, "stop"),
    { type: "app_stop", app: "a" },
    { signal: stop.signal },
  );
  stop.abort(new Error("too late"));
  await t.throwsAsync(running, { message: "too late" });
});

const update = (options: FakeOptions) => {
  const { apps, asked } = fakeApps(options);
  return { asked, run: act(createAppUpdateAction(apps), { type: "app_update", app: "a" }) };
};

test("an app is upgraded, and stopped for it if it runs", async (t) => {
  const { asked, run } = update({});
  t.deepEqual(await run, { output: "a upgraded from 1.0 to 2.0\n" });
  t.deepEqual(asked, ["upgrade a stopped for it"]);
});

test("an update reports that no newer version is available", async (t) => {
  t.is((await update({ upToDate: true }).run).output, "a 1.0 is up to date\n");
  t.is((await update({ to: "1.0" }).run).output, "a 1.0 reinstalled from its source\n");
});

test("a failed upgrade is the run's error", async (t) => {
  const { run } = update({ fail: { upgrade: new SvcError("build_failed", "the build failed") } });
  t.is((await t.throwsAsync(run)).message, "the build failed");
});

test("a backup goes to the storages of its job, and fails if one of them does not get it", async (t) => {
  const asked: unknown[] = [];
  const resultOf = (storage: string, error: string) => ({ storage, name: "n", error, removed: ["old"] });
  const create = (appId: string, request: object, { uid }: AppCaller) => {
    asked.push([appId, request, uid]);
    return Promise.resolve({ results: [resultOf("a", ""), resultOf("b", "it is full")], warnings: ["odd"] });
  };
  const action = { type: "backup", app: "web", storages: ["a", "b"], keep: 3 } as const;
  const backups = { create } as unknown as Backups;
  const { error, output } = await act(createBackupAction(backups), action, { ownerUid: 1000 });
  t.deepEqual(asked, [["web", { storages: ["a", "b"], keep: 3, mode: "" }, 1000]]);
  t.is(error, "b: it is full");
  t.is(output, "warning: odd\na: n\na: removed old\nb: it is full\nb: removed old\n");
});

// Reboots with a harmless command.

const action = { type: "node_reboot" } as const;

function prepare(command: readonly string[]) {
  const userHelpers = createUserHelpers();
  const clock = new FakeClock("2026-01-01T00:00:00Z");
  const log = { warn: () => undefined };
  const reboot = createNodeRebootAction(new HostReboot({ command, userHelpers, clock, log }));
  return { clock, userHelpers, reboot };
}

test("the command runs 3 s after the action, and its failure is reported", async (t) => {
  const { clock, userHelpers, reboot } = prepare(["sh", "-c", "echo no permission >&2; exit 1"]);
  await using _userHelpers = userHelpers;
  const { output, error, afterwards } = await act(reboot, action);
  t.is(error, undefined);
  t.is(output, "the host reboots in 3 s\n");
  let isOver = false;
  const over = afterwards?.(new AbortController().signal).finally(() => (isOver = true));
  clock.pass(2_999);
  await new Promise((resolve) => setImmediate(resolve));
  t.false(isOver);
  clock.pass(1);
  const failure = await t.throwsAsync<SvcError>(Promise.resolve(over), { instanceOf: SvcError });
  t.is(failure.message, "the reboot command sh -c echo no permission >&2; exit 1 failed: no permission");
});

test("a successful command reports nothing else", async (t) => {
  const { clock, userHelpers, reboot } = prepare(["true"]);
  await using _userHelpers = userHelpers;
  const { afterwards } = await act(reboot, action);
  const over = afterwards?.(new AbortController().signal);
  clock.pass(3_000);
  await t.notThrowsAsync(Promise.resolve(over));
});

test("the reboot can be canceled within the 3 s", async (t) => {
  const { clock, userHelpers, reboot } = prepare(["false"]);
  await using _userHelpers = userHelpers;
  const { afterwards } = await act(reboot, action);
  const stop = new AbortController();
  const over = afterwards?.(stop.signal);
  clock.pass(2_000);
  stop.abort(new Error("not now"));
  await t.throwsAsync(Promise.resolve(over), { message: "not now" });
  clock.pass(60_000);
});

test("a regular user's job cannot reboot the host", async (t) => {
  const { userHelpers, reboot } = prepare(["true"]);
  await using _userHelpers = userHelpers;
  const error = await t.throwsAsync<SvcError>(act(reboot, action, { ownerUid: 1000, isRoot: false }));
  t.is(error.code, "permission_denied");
});

// Shell jobs with real processes and other users.

const run = promisify(execFile);
const rootTest = isRoot ? test : test.skip;
/** `games`, if the tests run as root. */
const ownerUid = isRoot ? 5 : (process.getuid?.() ?? -1);

interface World extends AsyncDisposable {
  readonly action: Action;
  readonly userHelpers: UserHelpers;
  /** For the app `app`, which belongs to `ownerUid`. */
  readonly appDir: string;
  readonly shell: (command: string, options?: ActOptions) => ReturnType<typeof act>;
  readonly appShell: (command: string, options?: ActOptions) => ReturnType<typeof act>;
}

async function createWorld(passwdFile?: string): Promise<World> {
  const dir = await mkdtemp(join(tmpdir(), "svc-shell-"));
  await chmod(dir, 0o755);
  const users =
    passwdFile === undefined ? {} : { users: createUsers({ passwdFile, searchPath: dir, ttlMs: 0 }) };
  const userHelpers = createUserHelpers(users);
  const appDir = join(dir, "app");
  if (passwdFile === undefined) await userHelpers.createOwnedDir(appDir, ownerUid);
  const finder = { location: () => Promise.resolve({ directory: appDir, uid: ownerUid }) };
  const action = createShellAction({
    userHelpers,
    finder,
    starts: new Limiter({ ...startBounds, isReserved: (uid) => uid === 0 }),
  });
  const asOwner = { ownerUid, isRoot: false };
  return {
    action,
    userHelpers,
    appDir,
    shell: (command, options) => act(action, { type: "shell", command }, options),
    appShell: (command, options) =>
      act(action, { type: "shell", command, app: "app" }, { ...asOwner, ...options }),
    async [Symbol.asyncDispose]() {
      await userHelpers[Symbol.asyncDispose]();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

test("output of both streams is merged in the order of the writes, with the exit code", async (t) => {
  await using world = await createWorld();
  const { output, exitCode, error } = await world.shell("echo one; echo two >&2; echo three; exit 3");
  t.is(output, "one\ntwo\nthree\n");
  t.is(exitCode, 3);
  t.is(error, "the command exited with status 3");
  t.deepEqual(await world.shell("true"), { exitCode: 0, output: "" });
  t.like(await world.shell("kill -9 $$"), {
    exitCode: 137,
    error: "the command exited with status 137, which is SIGKILL",
    output: "",
  });
});

test("without an app: in / as the daemon's user, input /dev/null", async (t) => {
  await using world = await createWorld();
  const { output } = await world.shell("pwd; id -u; readlink /proc/self/fd/0; cat");
  t.is(output, `/\n${process.getuid?.() ?? -1}\n/dev/null\n`);
});

test("with an app: in its directory, as its owner, with the app's variables", async (t) => {
  await using world = await createWorld();
  const { output } = await world.appShell(
    'pwd; id -u; echo "$SVC_APP_ID $SVC_APP_DIR"; touch made; stat -c %u made',
  );
  t.is(output, `${world.appDir}\n${ownerUid}\napp ${world.appDir}\n${ownerUid}\n`);
});

rootTest(`the owner has all their groups and no capabilities${needsRoot}`, async (t) => {
  await using world = await createWorld();
  const { output } = await world.appShell(
    "id -G; grep -E '^(Groups|Uid|Gid|CapEff|NoNewPrivs)' /proc/self/status",
  );
  const { stdout: name } = await run("id", ["-un", String(ownerUid)]);
  const { stdout: groups } = await run("id", ["-G", name.trim()]);
  t.true(output.startsWith(groups), output);
  t.regex(output, /Uid:\t5\t5\t5\t5\n/);
  t.regex(output, /CapEff:\t0000000000000000/);
  t.notRegex(output, /Gid:\t0/);
});

test("the environment is clean and only descriptors 0 to 2 are open", async (t) => {
  process.env["SVC_CANARY"] = "leaked";
  await using world = await createWorld();
  delete process.env["SVC_CANARY"];
  for (const shell of [world.shell, world.appShell]) {
    // The output of `ls` is not piped: the shell itself has the pipe open until it has started the reader.
    const { output } = await shell("env | cut -d= -f1 | sort | tr '\\n' ' '; echo; ls /proc/$$/fd; true");
    const [variables, ...descriptors] = output.trimEnd().split("\n");
    t.regex(
      variables ?? "",
      /^HOME LANG LOGNAME (OLDPWD )?PATH PWD SHELL (SHLVL )?(SVC_APP_DIR SVC_APP_ID )?SVC_RUN_ID TMPDIR USER (_ )?$/,
    );
    t.deepEqual(descriptors, ["0", "1", "2"]);
  }
});

const leftover =
  "(setsid sh -c '(sleep 300 & echo $! > leftover) &' &); while [ ! -s leftover ]; do sleep 0.01; done";

test("a canceled run leaves no process, neither one that ignores SIGTERM nor one that forked twice", async (t) => {
  await using world = await createWorld();
  const stop = new AbortController();
  const running = world.appShell(
    `${leftover}; trap 'echo got term' TERM; sh -c 'trap "" TERM; echo $$ > deaf; sleep 300' & wait; wait`,
    {
      signal: stop.signal,
    },
  );
  const pids = await eventually(async () => {
    const texts = await Promise.all(
      ["leftover", "deaf"].map((name) => readFile(join(world.appDir, name), "utf8")),
    );
    const found = texts.map(Number);
    if (found.some((pid) => pid === 0)) throw new Error("not written yet");
    return found;
  });
  const startMs = performance.now();
  stop.abort(new Error("enough"));
  t.is((await running).error, "the run was stopped");
  t.true(performance.now() - startMs < 25_000);
  for (const pid of pids) t.false(await isAlive(pid));
});

test("a command that exits normally leaves no background process", async (t) => {
  await using world = await createWorld();
  const { exitCode, output } = await world.appShell(leftover);
  t.is(exitCode, 0);
  t.regex(output, /^\[stopped [12] background process(es)?\]\n$/);
  t.false(await isAlive(Number(await readFile(join(world.appDir, "leftover"), "utf8"))));
});

test("leftover processes of a command keep running if its job says so, unless the run is canceled", async (t) => {
  await using world = await createWorld();
  const keep = async (command: string, signal?: AbortSignal) =>
    act(
      world.action,
      { type: "shell", command, app: "app", keepChildren: true },
      { ownerUid, isRoot: false, ...(signal !== undefined && { signal }) },
    );
  const pidOf = async () => {
    const pid = Number(await readFile(join(world.appDir, "leftover"), "utf8"));
    if (pid === 0) throw new Error("not written yet");
    return pid;
  };
  t.deepEqual(await keep(leftover), { exitCode: 0, output: "" });
  const kept = await pidOf();
  t.true(await isAlive(kept));
  process.kill(kept, "SIGKILL");
  await rm(join(world.appDir, "leftover"));
  const stop = new AbortController();
  const running = keep(`${leftover}; sleep 300`, stop.signal);
  const ended = await eventually(pidOf);
  stop.abort(new Error("enough"));
  t.is((await running).error, "the run was stopped");
  t.false(await isAlive(ended));
});

test("a command's output and exit code after SIGTERM are recorded", async (t) => {
  await using world = await createWorld();
  const stop = new AbortController();
  const command = "trap 'echo bye; exit 4' TERM; echo begun; sleep 300 & wait";
  const ended = await world.appShell(command, {
    signal: stop.signal,
    onOutput: (output) => output.includes("begun") && stop.abort(new Error("enough")),
  });
  t.deepEqual(ended, { exitCode: 4, error: "the run was stopped", output: "begun\nbye\n" });
});

test("a command that kills its parent fails only itself, and is killed", async (t) => {
  await using world = await createWorld();
  const other = world.appShell("sleep 1; echo fine");
  await t.throwsAsync(world.appShell("echo $$ > orphan; kill -9 $PPID; sleep 300"), {
    message: "the parent process of the command was killed before the command exited",
  });
  const orphan = Number(await readFile(join(world.appDir, "orphan"), "utf8"));
  await eventually(async () => assert.ok(!(await isAlive(orphan))), 30_000);
  t.like(await other, { exitCode: 0, output: "fine\n" });
});

/** CPU time of the processes that this one has reaped, including their own reaped children. */
async function reapedMs(): Promise<number> {
  const text = await readFile("/proc/self/stat", "utf8");
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const tickMs = 10;
  return (Number(fields[13]) + Number(fields[14])) * tickMs;
}

test("the cost of a run does not grow with the number of the host's processes", async (t) => {
  await using world = await createWorld();
  const cost = async (): Promise<number> => {
    const beforeMs = await reapedMs();
    for (let round = 0; round < 10; round++) await world.shell("true");
    return (await reapedMs()) - beforeMs;
  };
  await world.shell("true");
  const aloneMs = await cost();
  const count = 1_500;
  const crowd = spawn(
    "sh",
    ["-c", `i=0; while [ $i -lt ${count} ]; do sleep 300 & i=$((i + 1)); done; echo; wait`],
    {
      stdio: ["ignore", "pipe", "ignore"],
      detached: true,
    },
  );
  try {
    await once(crowd.stdout, "data", { signal: AbortSignal.timeout(60_000) });
    const amongMs = await cost();
    t.log(`${aloneMs} ms of CPU time for ten runs, ${amongMs} ms with ${count} more processes`);
    // Reading each of them took half a second for ten runs and more.
    t.true(amongMs < aloneMs + 250, `${amongMs} ms, and ${aloneMs} ms without them`);
  } finally {
    process.kill(-crowd.pid!, "SIGKILL");
  }
});

test("a command with endless output does not block the event loop", async (t) => {
  await using world = await createWorld();
  const stop = new AbortController();
  const running = Promise.all(
    Array.from({ length: 4 }, () => world.appShell("yes", { signal: stop.signal })),
  );
  const delay = monitorEventLoopDelay({ resolution: 10 });
  delay.enable();
  await wait(1_500);
  delay.disable();
  stop.abort(new Error("enough"));
  const bytes = (await running).reduce((sum, { output }) => sum + output.length, 0);
  t.log(`${bytes >> 20} MiB, p99 ${Math.round(delay.percentile(99) / 1e6)} ms`);
  t.true(bytes > 1 << 20 && bytes < 600 << 20, String(bytes));
});

test("only root may have a shell job without an app", async (t) => {
  await using world = await createWorld();
  const error = await t.throwsAsync<SvcError>(
    world.shell("id > /tmp/x", { ownerUid: 12345, isRoot: false }),
    {
      instanceOf: SvcError,
    },
  );
  t.is(error.code, "permission_denied");
});

test("starting many commands does not block the event loop, however large the daemon is", async (t) => {
  await using world = await createWorld();
  await world.shell("true");
  // Pages whose tables a fork would have to copy each time.
  const large = Buffer.alloc(400 << 20, 1);
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  const signal = AbortSignal.timeout(120_000);
  const command = {
    command: "true",
    cwd: "/",
    env: {},
    keepChildren: false,
    output: () => undefined,
    signal,
  };
  const ends = await Promise.all(
    Array.from({ length: 64 }, () => world.userHelpers.runJob(ownerUid, command)),
  );
  delay.disable();
  t.true(ends.every(({ exitCode }) => exitCode === 0));
  t.log(`longest block ${Math.round(delay.max / 1e6)} ms`);
  t.true(delay.max / 1e6 < 1_000, `${delay.max / 1e6} ms with ${large.length} bytes`);
});

rootTest(`if the owner does not exist on the host any more, nothing runs${needsRoot}`, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-passwd-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const passwdFile = join(dir, "passwd");
  await writeFile(passwdFile, "root:x:0:0:root:/root:/bin/sh\n");
  await using world = await createWorld(passwdFile);
  const error = await t.throwsAsync<SvcError>(world.appShell(`touch ${dir}/canary`), {
    instanceOf: SvcError,
  });
  t.is(error.code, "failed_precondition");
  t.is(
    error.message,
    `uid ${ownerUid} has no passwd entry; create the user with: useradd --uid ${ownerUid} NAME`,
  );
  await t.throwsAsync(readFile(join(dir, "canary")), { code: "ENOENT" });
});

rootTest(
  `if the owner may have no more processes, nothing runs, especially not as root${needsRoot}`,
  async (t) => {
    await using world = await createWorld();
    await using _busy = await occupy(ownerUid);
    // A limit of this process is inherited by its children, and root itself is not affected by it.
    const limit = async (...args: string[]) => run("prlimit", ["--pid", String(process.pid), ...args]);
    const { stdout: before } = await limit("--nproc", "--output=SOFT", "--noheadings");
    await limit("--nproc=1:");
    t.teardown(() => limit(`--nproc=${before.trim()}:`));
    const error = await t.throwsAsync<SvcError>(world.appShell("id -u"), { instanceOf: SvcError });
    t.regex(error.message, /cannot act as user "games"|short of resources/);
  },
);

/** Makes the user run one process. */
async function occupy(uid: number): Promise<AsyncDisposable> {
  const child = spawn("sleep", ["300"], { uid, gid: uid, stdio: "ignore" });
  await new Promise((resolve) => child.once("spawn", resolve));
  return {
    async [Symbol.asyncDispose]() {
      const exited = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await exited;
    },
  };
}
