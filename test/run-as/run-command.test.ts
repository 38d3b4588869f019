/** Commands that run as a user, their terminals, and the end of all their processes. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile, chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, dirname } from "node:path";
import { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { eventually as eventuallyHolds } from "../support/eventually.ts";
import { programs } from "../support/programs.ts";
import { assertFails, createWorld, eventually, isAlive } from "./support/world.ts";

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
