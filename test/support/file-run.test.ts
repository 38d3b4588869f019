import { readFile } from "node:fs/promises";
import test from "ava";
import { eventually } from "./eventually.ts";
import { runFile, runningFiles, unsteadyOf } from "./file-run.ts";
import { summarizeTap } from "./tap.ts";

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

test("a file's results bear its name, each failure with what is said of it", async (t) => {
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
  test(`results of ${files.length} files bear the name of each: ${title}`, async (t) => {
    const { titles } = await run(`echo 'ok 1 - ${said}\n1..1'`, 60_000, [...files]);
    t.deepEqual(titles, [`passed ${title}`]);
  });
}

test("a file that hangs fails, and goes with what it started", async (t) => {
  const { tap, titles } = await run("echo 'ok 1 - passes'; sleep 1000 & echo \"# $!\"; wait", 500);
  t.deepEqual(titles, [
    "passed a › b › passes",
    "failed a › b › it hangs: nothing was heard of it for 0.5 s",
  ]);
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

test("what failed among others and passed alone is unsteady, whatever else of it fails", async (t) => {
  const files = ["test/a/b.test.ts", "test/a/c.test.ts"];
  const script = "echo 'not ok 1 - b › one\nnot ok 2 - c › two'; kill -9 $$";
  const together = { files, ...(await run(script, 60_000, files)) };
  const unsteady = async (...points: string[]): Promise<string[]> => {
    const alone = points.map(async (point, at) => {
      const own = files.slice(at, at + 1);
      return { files: own, ...(await run(`echo '${point}\n1..1'`, 60_000, own)) };
    });
    return unsteadyOf(together, await Promise.all(alone));
  };
  const [one, two] = ["  a › b › one", "  a › c › two"];
  t.deepEqual(await unsteady("ok 1 - one", "ok 1 - two"), [
    one,
    two,
    "  a › its runner ended early: SIGKILL",
  ]);
  t.deepEqual(await unsteady("ok 1 - one", "not ok 1 - two"), [one]);
  t.deepEqual(await unsteady("not ok 1 - one", "ok 1 - another"), []);
});
