/** Runs of tests: their results, hanging files, and tests that time out. */
import { execFile } from "node:child_process";
import { readFile, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import test from "ava";
import { eventually } from "./eventually.ts";
import { runFile, runningFiles } from "./file-run.ts";
import { fillProcessors } from "./room.ts";
import { formatCounts, parseTestPoint, summarizeTap } from "./tap.ts";

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
  const { counts, isWhole } = summarizeTap(whole);
  t.deepEqual(counts, { passed: 2, failed: 2, skipped: 2 });
  t.true(isWhole);
  t.is(formatCounts(counts), "2 passed, 2 failed, 2 skipped");
});

test("an interrupted stream is not complete", (t) => {
  t.false(summarizeTap(whole.slice(0, whole.indexOf("1..6"))).isWhole);
  t.false(summarizeTap("").isWhole);
});

test("two streams are complete when both have ended", (t) => {
  t.deepEqual(summarizeTap(whole + whole).counts, { passed: 4, failed: 4, skipped: 4 });
  t.true(summarizeTap(whole + whole).isWhole);
  t.false(summarizeTap(whole + whole.slice(0, whole.indexOf("1..6"))).isWhole);
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
  const { tap, failures } = await runFile({
    ...options,
    command: ["sh", "-c", script],
    onPoint: ({ outcome, title }) => titles.push(`${outcome} ${title}`),
    onLine: (line) => lines.push(line),
  });
  return { tap, failures, titles, lines };
}

test("a file's results start with its name, and each failure has its messages", async (t) => {
  const script = `echo 'TAP version 13
ok 1 - passes
not ok 2 - fails
  ---
    message: why
  ...
1..2'; exit 1`;
  const { tap, failures, titles, lines } = await run(script);
  t.deepEqual(titles, ["passed a › b › passes", "failed a › b › fails"]);
  t.deepEqual(failures, ["  a › b › fails\n    ---\n      message: why\n    ..."]);
  t.deepEqual(summarizeTap(tap).counts, { passed: 1, failed: 1, skipped: 0 });
  t.true(summarizeTap(tap).isWhole);
  t.is(`${lines.join("\n")}\n`, tap);
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
    t.true(summarizeTap(tap).isWhole);
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
    const { points, isWhole } = summarizeTap(tap);
    t.true(isWhole, tap);
    t.true(
      points.some(({ title, outcome }) => title === "stuck" && outcome === "failed"),
      tap,
    );
    t.regex(tap, why);
  });
}
