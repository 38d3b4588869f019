/**
 * Commands that run as a user, their terminals, and the end of all their processes. Programs that read untrusted
 * files run on copies, as a uid that nobody has.
 */
import assert from "node:assert/strict";
import { spawn, execFile } from "node:child_process";
import {
  readFile,
  chmod,
  mkdtemp,
  rm,
  writeFile,
  chown,
  lstat,
  mkdir,
  readdir,
  symlink,
} from "node:fs/promises";
import { tmpdir, homedir } from "node:os";
import { join, dirname } from "node:path";
import { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { createUserHelpers, type UserHelpersOptions } from "../../src/run-as/user-helpers.ts";
import { eventually as eventuallyHolds } from "../support/eventually.ts";
import { programs } from "../support/programs.ts";
import { assertFails, createWorld, eventually, isAlive, rootTest, someUid } from "./support/world.ts";
import { promisify } from "node:util";
import { chooseUnusedUid, processesOf, rangesIn } from "../../src/run-as/unused-uid.ts";
import type { IsolatedRun } from "../../src/run-as/isolated-run.ts";
import { createUsers } from "../../src/run-as/user.ts";

/** Starts a process that leaves group, session and ancestors, writes its PID to `leftover`, and stays. */
const leftover =
  '(setsid sh -c "(sleep 300 & echo \\$! > leftover) &" &) ; while [ ! -s leftover ]; do sleep 0.01; done';

const leftoverPid = async (app: string) =>
  Number(await readFile(join(app, "leftover"), "utf8").catch(() => "0"));

test("a command returns exit code, signal, output and lines", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const lines: string[] = [];
  const script = 'echo one; printf "two\\nthree"; echo oops >&2; pwd; exit 3';
  const result = await user.runCommand(["sh", "-c", script], {
    cwd: app,
    onLine: (line, stream) => lines.push(`${stream} ${line}`),
  });
  t.deepEqual(result, {
    exitCode: 3,
    signal: null,
    stdout: `one\ntwo\nthree${app}\n`,
    stderr: "oops\n",
    truncated: false,
  });
  t.deepEqual(lines.sort(), ["stderr oops", "stdout one", `stdout three${app}`, "stdout two"]);
  t.like(await user.runCommand(["sh", "-c", "kill -9 $$"]), { exitCode: null, signal: "SIGKILL" });
});

test("a process without environment is killed with a canceled run, even in another session", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const controller = new AbortController();
  const script = "setsid env -i sh -c 'echo $$ > leftover; exec sleep 300' & sleep 300";
  const refused = t.throwsAsync(
    user.runCommand(["sh", "-c", script], { cwd: app, signal: controller.signal }),
  );
  await eventually(t, "it is there", async () => isAlive(await leftoverPid(app)));
  controller.abort();
  await refused;
  t.false(await isAlive(await leftoverPid(app)));
});

test("a process that left and executes one program after another is found", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const again = "#!/bin/sh\nexec ./again\n";
  await user.runCommand(["sh", "-c", `printf '${again}' > again; chmod 755 again`], { cwd: app });
  const leaveOne = async (file: string): Promise<number> => {
    const script = `rm -f ${file}; (setsid sh -c 'echo $$ > ${file}; exec ./again' &); while [ ! -s ${file} ]; do sleep 0.01; done`;
    t.is((await user.runCommand(["sh", "-c", script], { cwd: app })).exitCode, 0);
    return Number(await readFile(join(app, file), "utf8"));
  };
  // About one in twenty scans sees no environment.
  for (let round = 0; round < 12; round++) {
    const pids = await Promise.all(["one", "two", "three", "four", "five"].map(leaveOne));
    const alive = await Promise.all(pids.map(isAlive));
    const left = pids.filter((_pid, at) => alive[at] === true);
    for (const pid of left) process.kill(pid, "SIGKILL");
    if (left.length > 0) return t.fail(`${left.length} were left in round ${round}`);
  }
  t.pass();
});

test("a process without environment is killed with its session, even in another group", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  // timeout(1) creates a new process group.
  const script =
    "env -i PATH=$PATH timeout 300 sh -c 'echo $$ > leftover; exec sleep 300' & while [ ! -s leftover ]; do sleep 0.01; done";
  t.is((await user.runCommand(["sh", "-c", script], { cwd: app })).exitCode, 0);
  t.true((await leftoverPid(app)) > 0);
  t.false(await isAlive(await leftoverPid(app)));
});

test("a command gets input, raw output with backpressure and the usual umask", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const bytes = Buffer.from(Array.from({ length: 4_000_000 }, (_, index) => index % 253));
  const got: Buffer[] = [];
  const slow = new Writable({
    highWaterMark: 1000,
    write(chunk: Buffer, _encoding, done) {
      got.push(chunk);
      setImmediate(done);
    },
  });
  await user.runCommand(["cat"], { stdin: Readable.from([bytes]), stdout: slow });
  t.true(Buffer.concat(got).equals(bytes));
  t.is((await user.runCommand(["wc", "-c"], { stdin: bytes })).stdout.trim(), "4000000");
  t.is((await user.runCommand(["cat"])).stdout, "", "no input is /dev/null");
  await user.runCommand(["touch", "g"], { cwd: app });
  t.is((await user.stat(app, "g"))?.mode, 0o644);
});

test("output that is consumed slowly is complete after the program has exited", async (t) => {
  await using world = await createWorld();
  // More than the window: part of it is still in the pipe then.
  const bytes = (1 << 20) + (100 << 10);
  let taken = 0;
  const slow = new Writable({
    write(chunk: Buffer, _encoding, done) {
      setTimeout(done, taken === 0 ? 3_000 : 0);
      taken += chunk.length;
    },
  });
  await world.user.runCommand(["head", "-c", String(bytes), "/dev/zero"], { stdout: slow });
  t.is(taken, bytes);
});

test("a program may ignore its input, and closing its output ends it", async (t) => {
  await using world = await createWorld();
  const { user } = world;
  const endless = () => new Readable({ read: () => undefined });
  const source = endless();
  t.is((await user.runCommand(["true"], { stdin: source })).exitCode, 0);
  t.true(source.destroyed);
  const closing = new Writable({
    write(_chunk, _encoding, done) {
      this.destroy();
      done();
    },
  });
  await t.throwsAsync(user.runCommand(["yes"], { stdout: closing, timeoutMs: 10_000 }), {
    message: /was closed/,
  });
});

test("endless output keeps only the last bytes, without growing memory", async (t) => {
  await using world = await createWorld();
  const { user } = world;
  const result = await user.runCommand(["sh", "-c", "seq 1 3000000; echo end"], { maxOutputBytes: 100 });
  t.true(result.truncated);
  t.is(result.stdout.length, 100);
  t.true(result.stdout.endsWith("2999999\n3000000\nend\n"));
  let count = 0;
  await user.runCommand(["seq", "1", "300000"], { onLine: () => count++ });
  t.is(count, 300_000);
});

test("output of nothing but short lines does not violate the protocol", async (t) => {
  await using world = await createWorld();
  let count = 0;
  const emptyLines = ["sh", "-c", "yes '' | head -c 3000000"];
  const { exitCode } = await world.user.runCommand(emptyLines, { onLine: () => count++ });
  t.is(exitCode, 0);
  t.is(count, 3_000_000);
});

test("a program that cannot be run is named", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.writeFile(app, "plain", "x");
  await assertFails(
    t,
    user.runCommand(["no-such-program"]),
    "not_found",
    /"no-such-program" is not installed/,
  );
  await assertFails(t, user.runCommand([join(app, "plain")]), "not_found", /may not be executed/);
  await assertFails(
    t,
    user.runCommand(["true"], { cwd: join(app, "none") }),
    "not_found",
    /cannot be entered/,
  );
  await assertFails(t, user.runCommand([]), "invalid_argument");
  await assertFails(t, user.runCommand(["true"], { cwd: "relative" }), "invalid_argument");
  await assertFails(t, user.runCommand(["echo", "a\0b"]), "invalid_argument");
  await assertFails(t, user.runCommand(["true"], { env: { A: "a\0b" } }), "invalid_argument");
});

test("the group gets SIGTERM on cancellation and at the deadline, and leftover processes are killed", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const script = `trap 'echo term > got; exit 0' TERM; ${leftover}; sleep 300 & wait`;
  const stop = new AbortController();
  const canceled = user.runCommand(["sh", "-c", script], { cwd: app, signal: stop.signal });
  await eventually(t, "the leftover runs", async () => isAlive(await leftoverPid(app)));
  stop.abort();
  await assertFails(t, canceled, "canceled");
  t.false(await isAlive(await leftoverPid(app)));
  t.is((await user.readFile(app, "got")).toString(), "term\n");
  await user.removeTree(app, "leftover");
  await assertFails(
    t,
    user.runCommand(["sh", "-c", script], { cwd: app, timeoutMs: 1500 }),
    "deadline_exceeded",
    /sh took longer than 1500 ms/,
  );
  t.not(await leftoverPid(app), 0);
  t.false(await isAlive(await leftoverPid(app)));
});

test("a program that ignores SIGTERM is killed 5 s later", async (t) => {
  await using world = await createWorld();
  const { user } = world;
  const start = performance.now();
  const stubborn = user.runCommand(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], {
    timeoutMs: 200,
  });
  await assertFails(t, stubborn, "deadline_exceeded");
  const tookMs = performance.now() - start;
  t.true(tookMs > 5_000 && tookMs < 25_000, `${tookMs} ms`);
});

test("a normal exit leaves no processes behind", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const { exitCode } = await user.runCommand(["sh", "-c", `${leftover}; sleep 300 & exit 0`], { cwd: app });
  t.is(exitCode, 0);
  t.not(await leftoverPid(app), 0);
  t.false(await isAlive(await leftoverPid(app)));
});

test("commands of a helper that dies are killed by its successor", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const running = user.runCommand(["sh", "-c", `echo $PPID > helper; ${leftover}; sleep 300`], { cwd: app });
  running.catch(() => undefined);
  await eventually(t, "the leftover runs", async () => isAlive(await leftoverPid(app)));
  process.kill(Number(await readFile(join(app, "helper"), "utf8")), "SIGKILL");
  await assertFails(t, running, "unavailable");
  const pid = await leftoverPid(app);
  await eventually(t, "the leftover is killed", async () => !(await isAlive(pid)));
});

test("a detached process outlives everything, with its input, log and start time", async (t) => {
  const world = await createWorld();
  const { app, user } = world;
  const script = "cat > config; echo out; echo err >&2; exec sleep 300";
  const { pid, startTicks } = await user.spawnDetached(["sh", "-c", script], {
    cwd: app,
    env: { NOTE: "x" },
    stdin: "secret",
    log: { root: app, path: "log" },
  });
  t.teardown(() => {
    if (pid > 1) process.kill(pid, "SIGKILL");
  });
  await eventually(t, "it has written", async () => (await user.stat(app, "log"))?.sizeBytes === 8);
  t.is((await user.readFile(app, "config")).toString(), "secret");
  t.is((await user.stat(app, "log"))?.mode, 0o600);
  await world[Symbol.asyncDispose]();
  await sleep(100);
  t.true(await isAlive(pid));
  const stat = await readFile(`/proc/${pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  t.is(Number(fields[19]), startTicks);
  t.is(Number(fields[3]), pid, "leader of its own session");
});

// The parent of a job's command on its own, with a replaceable scanning tool.

const script = join(dirname(programs.userHelper), "job-parent.sh");
/** A process that leaves its session, and executes a program a moment later. */
const leftoverProcess =
  "(setsid sh -c '(sleep 300 & echo $! > leftover) &' &); while [ ! -s leftover ]; do sleep 0.01; done";

test("a process without environment in one scan, as while it executes a program, is found by the next scan", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-job-parent-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  // The first scan finds nobody, like a scan while the process executes a program.
  const grep = `#!/bin/sh\n[ -e ${dir}/looked ] || { : >${dir}/looked; exit 1; }\nexec /bin/grep "$@"\n`;
  await writeFile(join(dir, "grep"), grep);
  await chmod(join(dir, "grep"), 0o755);
  const child = spawn("/bin/sh", [script, ".", "the-run", "end", dir, leftoverProcess], {
    env: { PATH: `${dir}:/usr/bin:/bin` },
    stdio: ["pipe", "ignore", "ignore", "pipe"],
  });
  const status = await text(child.stdio[3] as NodeJS.ReadableStream);
  t.regex(status, /^begun\nexit 0 [12]\n$/);
  t.true((await readFile(join(dir, "looked"))).length === 0);
  t.false(await isAlive(Number(await readFile(join(dir, "leftover"), "utf8"))));
});

// Programs of consoles: their output is complete, however slowly it is read.

const patienceMs = 30_000;

for (const hasTerminal of [true, false]) {
  const what = hasTerminal ? "a terminal" : "a pipe";
  test(`output of a program into ${what} is complete for a reader that starts after the program has exited`, async (t) => {
    await using userHelpers = createUserHelpers();
    // Less than the terminal buffers without a reader, so that the program can exit.
    const script = "echo $$; i=0; while [ $i -lt 30 ]; do echo line-$i-of-thirty; i=$((i+1)); done; exit 3";
    await using terminal = await userHelpers.openTerminal(userHelpers.selfUid, {
      argv: ["sh", "-c", script],
      cwd: "/",
      env: {},
      ...(hasTerminal && { size: { columns: 80, rows: 24 } }),
    });
    const pieces = terminal.output[Symbol.asyncIterator]();
    let text = "";
    const read = async (): Promise<boolean> => {
      const { done, value } = await pieces.next();
      if (done !== true && "data" in value) text += value.data.toString("latin1");
      return done !== true;
    };
    while (!/^\d+\r?\n/.test(text) && (await read()));
    const pid = Number(/^\d+/.exec(text)?.[0]);
    await eventuallyHolds(async () => {
      const stat = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => undefined);
      assert.equal(stat, undefined, "it has ended, and was reaped");
    }, patienceMs);
    // Longer than the wait for late output.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    while (await read());
    t.is([...text.matchAll(/line-\d+-of-thirty/g)].length, 30);
    t.is(await terminal.exitCode, 3);
  });
}

// Programs that read untrusted files run on copies, as a uid that nobody has.

const run = promisify(execFile);
const copied = {
  files: new Map([["/srv/app/repo/.env", Buffer.from("A=1\n")]]),
  directories: ["/srv/app/repo/context/"],
};

async function isolated(
  t: ExecutionContext,
  dir = tmpdir(),
  options: UserHelpersOptions = {},
): Promise<IsolatedRun> {
  const copiesPrefix = join(dir, `svc-copies-test-${process.pid}-`);
  const userHelpers = createUserHelpers({ helperPath: programs.userHelper, copiesPrefix, ...options });
  t.teardown(() => userHelpers[Symbol.asyncDispose]());
  return userHelpers.isolate(0, copied);
}

async function output(on: IsolatedRun, script: string, env = {}): Promise<string> {
  const { stdout, stderr } = await on.runCommand(["sh", "-c", script], { cwd: on.directory, env });
  return stdout + stderr;
}

rootTest("an isolated program reads the copies, and no file that only root may read", async (t) => {
  const secrets = await mkdtemp(join(homedir(), "svc-secret-"));
  t.teardown(() => rm(secrets, { recursive: true }));
  await writeFile(join(secrets, "key"), "sung", { mode: 0o600 });
  await using on = await isolated(t);
  t.is(
    await output(on, "cat srv/app/repo/.env && ls -d srv/app/repo/context"),
    "A=1\nsrv/app/repo/context\n",
  );
  t.regex(await output(on, `cat ${secrets}/key`), /Permission denied/);
});

rootTest("an isolated program has a uid and a gid that nobody has, and no privileges", async (t) => {
  await using on = await isolated(t);
  const [uid, groups] = (await output(on, "id -u; id -G")).trim().split("\n");
  t.true(Number(uid) >= 2_000_300_000);
  t.is(groups, uid);
  await t.throwsAsync(run("getent", ["passwd", uid!]));
  await using other = await isolated(t);
  t.not((await output(other, "id -u")).trim(), uid);
  t.regex(await output(on, "grep -E 'CapBnd|NoNewPrivs' /proc/self/status"), /CapBnd:\t0+\nNoNewPrivs:\t1/);
});

rootTest("an isolated program cannot change the copies", async (t) => {
  await using on = await isolated(t);
  for (const attempt of ["echo x > srv/app/repo/.env", "echo x > new", "mkdir srv/dir"])
    t.regex(await output(on, attempt), /Permission denied/);
});

rootTest("no other user can read the copies while the program runs", async (t) => {
  await using on = await isolated(t);
  const path = on.copyOf("/srv/app/repo/.env");
  const running = output(on, "sleep 5; echo done");
  const reading = run("setpriv", [`--reuid=${someUid}`, `--regid=${someUid}`, "--clear-groups", "cat", path]);
  await t.throwsAsync(reading, { message: /Permission denied/ });
  t.is(await running, "done\n");
});

rootTest("an isolated program gets its variables unchanged, and setpriv does not load them", async (t) => {
  await using on = await isolated(t);
  const A = `it's "$HOME" \\ and \`id\`\nsecond`;
  t.is(await output(on, 'printf %s "$A"', { A, "B.C": "x", LD_PRELOAD: "" }), A);
  const dir = await mkdtemp(join(tmpdir(), "svc-preload-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await chmod(dir, 0o777);
  // The loader complains about each program that loads it; setpriv would be one more.
  const before = (await output(on, "true", { LD_PRELOAD: join(dir, "no.so") })).split("\n").length;
  t.is(before, 2);
});

rootTest("an isolated program leaves no process and no copy", async (t) => {
  const on = await isolated(t);
  const uid = Number(await output(on, "id -u"));
  await output(on, "setsid sleep 600 >/dev/null 2>&1 & sleep 0.2");
  t.deepEqual(await processesOf(uid), []);
  await on[Symbol.asyncDispose]();
  await t.throwsAsync(lstat(on.directory), { code: "ENOENT" });
});

rootTest("an isolated program that takes too long is killed with what it started", async (t) => {
  await using on = await isolated(t);
  const uid = Number(await output(on, "id -u"));
  const sleeping = on.runCommand(["sh", "-c", "setsid sleep 600 & sleep 600"], { timeoutMs: 1_000 });
  await assertFails(t, sleeping, "deadline_exceeded", /^sh: not finished within 1000 ms$/);
  t.deepEqual(await processesOf(uid), []);
});

/** Each process writes a byte, starts the next one and exits, for 20 s. */
const chain = (file: string): string => `
import os, time
end = time.time() + 20
def run():
    os.setsid()
    out = os.open("${file}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for fd in (0, 1, 2): os.dup2(out, fd)
    while time.time() < end:
        os.write(out, b"x")
        os.fork() and os._exit(0)
os.fork() or run()
time.sleep(1)
`;
/** Directories with `setpriv`, and with an `unshare` of this content. */
async function programsWith(t: ExecutionContext, unshare?: string): Promise<UserHelpersOptions> {
  const dir = await mkdtemp(join(tmpdir(), "svc-programs-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const { stdout: setpriv } = await run("sh", ["-c", "command -v setpriv"]);
  await symlink(setpriv.trim(), join(dir, "setpriv"));
  if (unshare !== undefined) await writeFile(join(dir, "unshare"), unshare, { mode: 0o755 });
  return { setprivDirs: [dir] };
}

rootTest("nothing runs isolated on a host without unshare", async (t) => {
  await using on = await isolated(t, tmpdir(), await programsWith(t));
  await assertFails(
    t,
    on.runCommand(["true"]),
    "failed_precondition",
    /unshare is not installed; install util/,
  );
});

for (const [title, rest, ending, unshare] of [
  ["exited", "", undefined, undefined],
  ["was killed", "time.sleep(20)", "deadline_exceeded", undefined],
  ["exited on a host that forbids PID namespaces", "", undefined, "#!/bin/sh\nexit 1\n"],
] as const) {
  rootTest(`after a program ${title}, processes that replace themselves at once are killed`, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-chain-"));
    t.teardown(() => rm(dir, { recursive: true }));
    await chmod(dir, 0o777);
    const file = join(dir, "bytes");
    const options = unshare === undefined ? {} : await programsWith(t, unshare);
    await using on = await isolated(t, tmpdir(), options);
    const running = on.runCommand(["python3", "-c", chain(file) + rest], { timeoutMs: 4_000 });
    if (ending === undefined) t.is((await running).exitCode, 0);
    else await assertFails(t, running, ending, /not finished/);
    const { size } = await lstat(file);
    t.not(size, 0);
    await sleep(500);
    t.is((await lstat(file)).size, size);
  });
}

rootTest("an isolated program has limits for memory, processes and files", async (t) => {
  await using on = await isolated(t);
  t.regex(await output(on, "head -c 3000000000 /dev/zero | tail -c 2000000000 | wc -c"), /exhausted/);
  t.regex(await output(on, "ulimit -a"), /data[^\n]*1048576\n/);
  const start = "i=0; while [ $i -lt 600 ]; do sleep 60 >/dev/null 2>&1 & i=$((i+1)); done";
  t.regex(await output(on, start), /fork/);
});

rootTest("a program that is not installed is reported", async (t) => {
  await using on = await isolated(t);
  t.like(await on.runCommand(["no-such-program"]), {
    exitCode: 127,
    stderr: "no-such-program is not installed\n",
  });
});

rootTest("a start removes the copies of a killed daemon, and nothing of other users", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-left-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const copiesPrefix = join(dir, "svc-copies-1-");
  const userHelpers = createUserHelpers({ helperPath: programs.userHelper, copiesPrefix });
  t.teardown(() => userHelpers[Symbol.asyncDispose]());
  await userHelpers.isolate(0, copied);
  await mkdir(join(dir, "svc-copies-1-user"));
  await chown(join(dir, "svc-copies-1-user"), someUid, someUid);
  await symlink("/etc", join(dir, "svc-copies-1-link"));
  await mkdir(join(dir, "svc-copies-2-other"));
  t.is((await readdir(dir)).length, 4);
  await userHelpers.removeLeftCopies();
  t.deepEqual((await readdir(dir)).toSorted(), [
    "svc-copies-1-link",
    "svc-copies-1-user",
    "svc-copies-2-other",
  ]);
});

rootTest("no uid is chosen that an account or a process has", async (t) => {
  const users = createUsers();
  const drawn = [0, someUid, 2_100_000_000];
  const sleeping = execFile("setpriv", [`--reuid=${someUid}`, "--clear-groups", "sleep", "60"]);
  t.teardown(() => sleeping.kill("SIGKILL"));
  await eventuallyHolds(async () => t.not((await processesOf(someUid)).length, 0));
  t.is(await chooseUnusedUid(users, () => drawn.shift()!), 2_100_000_000);
});

rootTest("the ranges of subordinate IDs are known", (t) => {
  t.deepEqual(rangesIn("ann:100000:65536\n# bob:1:2\n1000:2000400000:10\nbad\n"), [
    [100_000, 65_536],
    [2_000_400_000, 10],
  ]);
});
