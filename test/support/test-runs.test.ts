/** Runs of tests: their results, hanging files, timeouts, repeated attempts, and the bundled packages. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { EventEmitter } from "node:events";
import { glob, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import * as http from "node:http";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import test from "ava";
import { eventually, nextEvent } from "./eventually.ts";
import { runFile, runningFiles } from "./file-run.ts";
import { hideLog, showLog } from "./live-logs.ts";
import { fillProcessors } from "./room.ts";
import { formatCounts, parseTestPoint, summarizeTap } from "./tap.ts";
import { timeoutsIn } from "./test-files.ts";

// Runs of tests: their results, hanging files, and tests that time out.

const whole = `TAP version 13
ok 1 - a › passes
ok 2 - a › as another user (needs root) # SKIP
not ok 3 - a › later # TODO
not ok 4 - Error: uncaught
  ---
    message: ok 9 - not a test
  ...
not ok 5 - a › fails - with a dash
#   ok, some note
ok 6 - a › knows C# SKIPS

1..6
# tests 6
`;

test("passes, failures, failures outside of tests, skips and todos are counted", (t) => {
  const { counts, failures, isComplete } = summarizeTap(whole);
  t.deepEqual(counts, { passed: 2, failed: 2, skipped: 2 });
  t.deepEqual(failures, [
    "  Error: uncaught\n    ---\n      message: ok 9 - not a test\n    ...",
    "  a › fails - with a dash",
  ]);
  t.true(isComplete);
  t.is(formatCounts(counts), "2 passed, 2 failed, 2 skipped");
});

test("a file that has not run yet is estimated by the timeouts of its tests", (t) => {
  t.is(timeoutsIn("test(…); t.timeout(30_000); t.timeout(2 * 60_000);"), 150_000);
  t.is(timeoutsIn("const mostMs = 10 * 60_000;\nt.timeout(mostMs);"), 600_000);
  t.is(timeoutsIn("t.timeout(isLong ? 3_600_000 : 300_000);"), 300_000);
  t.is(timeoutsIn("no test has one"), 0);
});

test("an interrupted stream is not complete", (t) => {
  t.false(summarizeTap(whole.slice(0, whole.indexOf("1..6"))).isComplete);
  t.false(summarizeTap("").isComplete);
});

test("two streams are complete when both have ended", (t) => {
  t.deepEqual(summarizeTap(whole + whole).counts, { passed: 4, failed: 4, skipped: 4 });
  t.true(summarizeTap(whole + whole).isComplete);
  t.false(summarizeTap(whole + whole.slice(0, whole.indexOf("1..6"))).isComplete);
});

test("a title keeps its dashes and loses its directive", (t) => {
  t.deepEqual(parseTestPoint("not ok 5 - a › b - c"), { outcome: "failed", title: "a › b - c" });
  t.deepEqual(parseTestPoint("ok 2 - a › b (no root) # SKIP"), {
    outcome: "skipped",
    title: "a › b (no root)",
  });
  t.is(parseTestPoint("# ok 1 - a comment"), undefined);
});

/** Runs a shell script as a test file. */
async function run(script: string, silenceMs = 60_000, files = ["test/a/b.test.ts"]) {
  const titles: string[] = [];
  const lines: string[] = [];
  const options = { cwd: "/", env: process.env, silenceMs, files };
  const { tap } = await runFile({
    ...options,
    command: ["sh", "-c", script],
    onPoint: ({ outcome, title }) => titles.push(`${outcome} ${title}`),
    onLine: (line) => lines.push(line),
  });
  return { tap, titles, lines };
}

test("a file's results start with its name, and each failure has its messages", async (t) => {
  const script = `echo 'TAP version 13
ok 1 - passes
not ok 2 - fails
  ---
    message: why
  ...
1..2'; exit 1`;
  const { tap, titles, lines } = await run(script);
  t.deepEqual(titles, ["passed a › b › passes", "failed a › b › fails"]);
  t.deepEqual(summarizeTap(tap).failures, ["  a › b › fails\n    ---\n      message: why\n    ..."]);
  t.deepEqual(summarizeTap(tap).counts, { passed: 1, failed: 1, skipped: 0 });
  t.true(summarizeTap(tap).isComplete);
  t.is(`${lines.join("\n")}\n`, tap);
});

test("a failure has what the hooks of its test logged", async (t) => {
  const hook = "# a › b › afterEach.always hook for fails\n#   the page shows:\n#   nothing\n# other";
  const { tap } = await run(`echo 'TAP version 13\nnot ok 1 - fails\n  ---\n  ...\n${hook}\n1..1'; exit 1`);
  t.deepEqual(summarizeTap(tap).failures, [
    "  a › b › fails\n    ---\n    ...\n      the page shows:\n      nothing",
  ]);
});

for (const [files, said, title] of [
  [["test/a/b.test.ts", "test/a/c/d.test.ts"], "c › d › passes", "a › c › d › passes"],
  [["test/a/b.test.ts", "test/ab/c.test.ts"], "ab › c › passes", "ab › c › passes"],
  [[], "a › b › passes", "a › b › passes"],
] as const) {
  test(`results of ${files.length} files start with the name of each: ${title}`, async (t) => {
    const { titles } = await run(`echo 'ok 1 - ${said}\n1..1'`, 60_000, [...files]);
    t.deepEqual(titles, [`passed ${title}`]);
  });
}

test("a file that hangs fails, and its processes are killed", async (t) => {
  const { tap, titles } = await run("echo 'ok 1 - passes'; sleep 1000 & echo \"# $!\"; wait", 500);
  t.deepEqual(titles, ["passed a › b › passes", "failed a › b › it hangs: no output for 0.5 s"]);
  const pid = /^# (\d+)$/m.exec(tap)?.[1] ?? "none";
  await eventually(async () => {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "gone");
    if (!/^gone|\) Z /.test(stat)) throw new Error(stat);
  });
  t.deepEqual(runningFiles(), []);
});

for (const [what, script, how] of [
  ["dies", "echo 'ok 1 - passes'; kill -9 $$", "SIGKILL"],
  ["breaks off", "echo 'ok 1 - passes'", "exit code 0"],
  ["ends badly without saying what failed", "echo 'ok 1 - passes\n1..1'; exit 3", "exit code 3"],
] as const) {
  test(`a file whose runner ${what} fails`, async (t) => {
    const { tap, titles } = await run(script);
    t.is(titles[1], `failed a › b › its runner ended early: ${how}`);
    t.deepEqual(summarizeTap(tap).counts, { passed: 1, failed: 1, skipped: 0 });
    t.true(summarizeTap(tap).isComplete);
  });
}

test("work runs concurrently until none is left, with at most four per CPU", async (t) => {
  let left = 60;
  let running = 0;
  let most = 0;
  await fillProcessors(async () => {
    if (left === 0) return false;
    left -= 1;
    running += 1;
    most = Math.max(most, running);
    await sleep(200);
    running -= 1;
    return true;
  });
  t.is(left, 0);
  t.is(running, 0, "started work has finished");
  t.true(most > availableParallelism());
  t.true(most <= availableParallelism() * 4);
});

test("a failure is reported", async (t) => {
  await t.throwsAsync(
    fillProcessors(() => Promise.reject(new Error("no room"))),
    { message: "no room" },
  );
});

const root = join(import.meta.dirname, "../..");

/** Runs AVA as configured here, but with a timeout of five seconds, on a file of tests. */
async function runAva(file: string): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-ava-"));
  try {
    await symlink(join(root, "node_modules"), join(dir, "node_modules"));
    await mkdir(join(dir, "test"));
    await writeFile(join(dir, "package.json"), '{"type":"module"}');
    await writeFile(join(dir, "test/file.js"), file);
    await writeFile(
      join(dir, "ava.config.js"),
      `import "${pathToFileURL(join(root, "ava.config.js")).href}"; export default { timeout: "5s", files: ["test/*.js"], cache: false };`,
    );
    const { promise, resolve } = Promise.withResolvers<string>();
    const env = { PATH: process.env["PATH"] };
    execFile(
      process.execPath,
      [join(root, "node_modules/.bin/ava"), "--tap"],
      { cwd: dir, env, timeout: 60_000 },
      (_error, stdout, stderr) => resolve(stdout + stderr),
    );
    return await promise;
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

for (const [what, body, why] of [
  [
    "does not end",
    "await new Promise((resolve) => setTimeout(resolve, 60_000))",
    /no new tests completed within the last 5000ms/,
  ],
  ["ends its process", "process.exit(3)", /Exiting due to process\.exit\(\)/],
] as const) {
  test(`a test that ${what} fails with its title and the reason`, async (t) => {
    const tap = await runAva(
      `import test from "ava"; test("first", (t) => t.pass()); test("stuck", async (t) => { ${body}; t.pass(); });`,
    );
    const { points, isComplete } = summarizeTap(tap);
    t.true(isComplete, tap);
    t.true(
      points.some(({ title, outcome }) => title === "stuck" && outcome === "failed"),
      tap,
    );
    t.regex(tap, why);
  });
}

test("a wait that fails reports its duration, its caller, its last error, and the logs of the daemons", async (t) => {
  showLog("daemon one", () => "first\n".repeat(100) + "last\n");
  const error = await t
    .throwsAsync(eventually(() => assert.equal("STOPPED", "RUNNING"), 50))
    .finally(() => hideLog("daemon one"));
  t.true(error instanceof assert.AssertionError);
  t.regex(error.message, /^not within 0\.05 s \(test\/support\/test-runs\.test\.ts:\d+:\d+\): /);
  t.regex(error.message, /STOPPED[^]*RUNNING[^]*last log lines of daemon one:\n(first\n){14}last$/);
});

test("an attempt that does not return fails with the error of the previous attempt", async (t) => {
  let attempts = 0;
  const attempt = (): Promise<void> => {
    if (attempts++ === 0) throw new Error("busy");
    return new Promise(() => undefined);
  };
  await t.throwsAsync(eventually(attempt, 50, 250, 100), {
    message: /^not within 0\.05 s .*: the last attempt did not return; the attempt before it failed: busy$/,
  });
});

test("an event that is not emitted fails with its name", async (t) => {
  await t.throwsAsync(nextEvent(new EventEmitter(), "ready", 50), {
    message: /^not within 0\.05 s \(test\/support\/test-runs\.test\.ts.*\): no "ready" of EventEmitter$/,
  });
});

test("an emitter's error fails the wait for another event", async (t) => {
  const emitter = new EventEmitter();
  setImmediate(() => emitter.emit("error", new Error("gone")));
  await t.throwsAsync(nextEvent(emitter, "ready"), { message: "gone" });
});

/** Must match one-file-modules.ts. */
const imports =
  /from "((?:@bufbuild\/protobuf|@connectrpc\/connect|@connectrpc\/connect-node)(?:\/[^"]*)?)"/g;

test("all imports of a package resolve to the same copy, bundled or not", async (t) => {
  const files = await Array.fromAsync(glob(["src/**/*.ts", "gen/**/*.ts", "test/**/*.ts"], { cwd: root }));
  const texts = await Promise.all(files.map((file) => readFile(join(root, file), "utf8")));
  const names = new Set(texts.flatMap((text) => [...text.matchAll(imports)].map(([, name = ""]) => name)));
  const isPutTogether = (name: string): boolean => import.meta.resolve(name).includes("/svc-test-modules/");
  t.true(names.has("@bufbuild/protobuf/wkt"));
  const expected = isPutTogether("ava");
  t.deepEqual(
    [...names].filter((name) => isPutTogether(name) !== expected),
    [],
  );
});

test("HTTP is Node's, except for its WebSocket client", (t) => {
  const { default: whole, ...imported } = http as Record<string, unknown>;
  const own: Record<string, unknown> = { ...process.getBuiltinModule("node:http") };
  for (const name of ["WebSocket", "CloseEvent", "MessageEvent"]) {
    Reflect.deleteProperty(own, name);
    Reflect.deleteProperty(imported, name);
  }
  t.is(whole, process.getBuiltinModule("node:http"));
  t.deepEqual(Object.keys(imported).sort(), Object.keys(own).sort());
  t.true(Object.entries(own).every(([name, value]) => imported[name] === value));
});
