/**
 * `npm test [-- [--quick] [--tap-file FILE] [AVA's arguments]]`: says what this machine lacks, runs each file by an AVA of its
 * own, as many at a time as keep the processors busy, and ends with the counts, after the failures and what was skipped. A file
 * that hangs fails alone. Quick files share an AVA with others; when one of them fails, each is run by its own.
 * When a few files failed, each is run once more, alone: what passes then is told as unsteady, with what failed at first.
 * `--quick` leaves out the files that start daemons or container engines, and those that took more than three seconds the last
 * time, for the loop of an edit. `--tap-file` keeps AVA's own words for whoever counts afterwards.
 * Fails when a test failed, when none ran, or when an AVA died halfway.
 */
import { spawnSync } from "node:child_process";
import { createWriteStream } from "node:fs";
import { delimiter, join } from "node:path";
import { missing } from "../../.ci/optional.ts";
import { endAll, runFile, runningFiles, unsteadyOf, type FileRun } from "./file-run.ts";
import { buildOneFileModules } from "./one-file-modules.ts";
import { againLine, formatCounts, summarizeTap, titleOfFile } from "./tap.ts";
import { fillProcessors } from "./room.ts";
import { chooseTestFiles } from "./test-files.ts";
import { keepTestTimes } from "./test-times.ts";

const root = join(import.meta.dirname, "../..");
const { tapFile, isQuick, avaArguments } = readArguments();
const silenceMs = (process.env["SVC_LONG"] === undefined ? 8 : 90) * 60_000;
/** More failing files than these are no accident of a busy machine. */
const mostAgain = 3;
const marks = { passed: "✔", failed: "✘", skipped: "-" };

const lacks = await missing({
  root: "tests that act as other users are skipped; run as root for them.",
  dockerd: "tests that need a container engine are skipped.",
  go: "openapi/base.json is taken as committed, not generated afresh.",
});
for (const line of lacks) console.log(line);

const bundle = join(root, "node_modules/.cache/svc-under-test");
/** What AVA and test files load again for each file, compiled and without types: a tenth of what most take. */
const compiled = join(root, "node_modules/.cache/svc-tests-compiled");
/** What .ci/run has built: a call of that compose takes a fifth of the processor time of Debian's. */
const tools = join(root, "node_modules/.cache/svc-tools");
const path = [tools, process.env["PATH"] ?? ""].join(delimiter);
const { status } = spawnSync(process.execPath, [join(root, "src/build/bundle.ts"), bundle], {
  stdio: ["ignore", "ignore", "inherit"],
});
if (status !== 0) process.exit(1);
const redirect = await buildOneFileModules();

// Kept line by line, so that what ran can be counted even when this run is ended from outside.
const kept = tapFile === undefined ? undefined : createWriteStream(tapFile);
const runs: FileRun[] = [];
/** Milliseconds by file, up to its last result. */
const times: Record<string, number> = {};
/** What failed at first, each with all that is said of it. */
const unsteady: string[] = [];
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    const files = runningFiles();
    endAll();
    summarize(`\nEnded by ${signal} while these were running: ${files.join(", ")}`);
    process.exit(1);
  });
}
// What is named by patterns or further options is AVA's to find, and one run.
const batches = avaArguments.length === 0 ? await chooseTestFiles(isQuick) : [[]];
await fillProcessors(runNext);
await runFailedAgain();
kept?.end();
await keepTestTimes(Object.fromEntries(Object.entries(times).map(([file, ms]) => [file, Math.round(ms)])));
summarize();

/** Runs the next batch; false where none was left. */
async function runNext(): Promise<boolean> {
  const batch = batches.shift();
  if (batch === undefined) return false;
  if (batch.length <= 1) runs.push(await run(batch));
  else await runTogether(batch);
  return true;
}

/** What fails, dies or hangs among others is run once more, each file by an AVA of its own as if it always had been. */
async function runTogether(batch: readonly string[]): Promise<void> {
  const together = await run(batch, false);
  if (together.failures.length === 0) {
    kept?.write(together.tap);
    runs.push(together);
    return;
  }
  console.log(`\nOnce more, each alone: ${batch.join(" ")}`);
  const alone: FileRun[] = [];
  for (const file of batch) alone.push(await run([file]));
  runs.push(...alone);
  unsteady.push(...unsteadyOf(together, alone));
}

async function runFailedAgain(): Promise<void> {
  const failed = runs.filter(({ failures }) => failures.length > 0);
  if (avaArguments.length > 0 || failed.length > mostAgain) return;
  for (const first of failed) {
    const [file = ""] = first.files;
    console.log(`\nOnce more, alone: ${file}`);
    const second = await run([file], false);
    kept?.write(`${againLine(file)}\n${second.tap}`);
    runs.splice(runs.indexOf(first), 1, second);
    unsteady.push(...unsteadyOf(first, [second]));
  }
}

function run(files: readonly string[], isKept = true): Promise<FileRun> {
  const asked = avaArguments.length === 0 ? files : avaArguments;
  let lastMs = performance.now();
  for (const file of files) times[file] = 0;
  return runFile({
    files,
    command: [join(root, "node_modules/.bin/ava"), "--tap", `--node-arguments=${redirect}`, ...asked],
    cwd: root,
    env: { ...process.env, PATH: path, SVC_TEST_MAIN: join(bundle, "svc.cjs"), NODE_COMPILE_CACHE: compiled },
    silenceMs,
    onPoint: ({ outcome, title }) => {
      console.log(`${marks[outcome]} ${title}`);
      const file = files.find((one) => title.startsWith(`${titleOfFile(one)} › `));
      if (file !== undefined) times[file] = (times[file] ?? 0) + performance.now() - lastMs;
      lastMs = performance.now();
    },
    onLine: (line) => {
      if (isKept) kept?.write(`${line}\n`);
    },
  });
}

/** What was skipped, the failures, the longest files and the counts: at the end, as it is often only the end that is looked at. */
function summarize(note = ""): void {
  const { counts, points } = summarizeTap(runs.map(({ tap }) => tap).join(""));
  const list = (title: string, lines: readonly string[]): void => {
    if (lines.length > 0) console.log(`\n${title}:\n${lines.join("\n")}`);
  };
  list(
    "skipped",
    points
      .filter(({ outcome }) => outcome === "skipped")
      .map(({ title }) => `  ${title}`)
      .sort(),
  );
  list("unsteady (failed beside others, passed alone)", unsteady.sort());
  const failures = runs.flatMap((one) => one.failures).sort();
  list("failed", failures);
  const longest = Object.entries(times).toSorted(([, one], [, other]) => other - one);
  if (longest.length > 1)
    list(
      "longest",
      longest.slice(0, 10).map(([file, ms]) => `  ${String(Math.round(ms / 1000))} s ${file}`),
    );
  // Once more by their names: what is kept of a long output is often its last lines.
  list(
    "these failed",
    failures.map((one) => one.split("\n", 1).join("")),
  );
  console.log(`${note}\n${formatCounts(counts)}`);
  process.exitCode = note === "" && counts.failed === 0 && counts.passed > 0 ? 0 : 1;
}

function readArguments(): { tapFile: string | undefined; isQuick: boolean; avaArguments: string[] } {
  const avaArguments = process.argv.slice(2);
  const quickAt = avaArguments.indexOf("--quick");
  if (quickAt !== -1) avaArguments.splice(quickAt, 1);
  const at = avaArguments.indexOf("--tap-file");
  const tapFile = at === -1 ? undefined : avaArguments.splice(at, 2)[1];
  return { tapFile, isQuick: quickAt !== -1, avaArguments };
}
