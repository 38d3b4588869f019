/**
 * `node run-tests.ts [--all | --deep] [--tap-file FILE] [AVA's arguments]`: prints what this machine lacks, runs the test files of
 * the basic tier, of both tiers (`--all`) or of the deep tier (`--deep`), as many at once as the CPUs allow, and ends with the
 * skipped tests, the failures and the counts. Each AVA process runs in a process group of its own, which is killed if it prints
 * nothing for minutes. `--tap-file` writes the output of AVA as it comes. Fails when a test failed, when none ran, or when an
 * AVA process died.
 */
import { spawnSync } from "node:child_process";
import { createWriteStream } from "node:fs";
import { delimiter, join } from "node:path";
import { missing } from "../../.ci/optional.ts";
import { endAll, runFile, runningFiles, type FileRun } from "./file-run.ts";
import { buildOneFileModules } from "./one-file-modules.ts";
import { formatCounts, summarizeTap, titleOfFile } from "./tap.ts";
import { fillProcessors } from "./room.ts";
import { chooseTestFiles, type Tier } from "./test-files.ts";
import { keepTestTimes } from "./test-times.ts";

const root = join(import.meta.dirname, "../..");
const { tapFile, tiers, avaArguments } = readArguments();
const silenceMs = (process.env["SVC_LONG"] === undefined ? 8 : 90) * 60_000;
const marks = { passed: "✔", failed: "✘", skipped: "-" };

const lacks = await missing({
  root: "tests that act as other users are skipped; run as root for them.",
  dockerd: "tests that need a container engine are skipped.",
  go: "openapi/base.json is taken as committed, not generated again.",
});
for (const line of lacks) console.log(line);

const bundle = join(root, "node_modules/.cache/svc-under-test");
/**
 * The compile cache of modules that AVA and test files load for each file, without types: a tenth of the time of most
 * files.
 */
const compiled = join(root, "node_modules/.cache/svc-tests-compiled");
/** Built by .ci/run: a call of that compose uses a fifth of the CPU time of Debian's. */
const tools = join(root, "node_modules/.cache/svc-tools");
const path = [tools, process.env["PATH"] ?? ""].join(delimiter);
const { status } = spawnSync(process.execPath, [join(root, "src/build/bundle.ts"), bundle], {
  stdio: ["ignore", "ignore", "inherit"],
});
if (status !== 0) process.exit(1);
const redirect = await buildOneFileModules();

// Written line by line, so that results can be counted even if this run is killed.
const kept = tapFile === undefined ? undefined : createWriteStream(tapFile);
const runs: FileRun[] = [];
/** Milliseconds by file, up to its last result. */
const times: Record<string, number> = {};
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    const files = runningFiles();
    endAll();
    summarize(`\nEnded by ${signal} while these were running: ${files.join(", ")}`);
    process.exit(1);
  });
}
// AVA expands the file patterns of its arguments.
const batches = avaArguments.length === 0 ? (await Promise.all(tiers.map(chooseTestFiles))).flat() : [[]];
await fillProcessors(runNext);
kept?.end();
await keepTestTimes(Object.fromEntries(Object.entries(times).map(([file, ms]) => [file, Math.round(ms)])));
summarize();

/** Runs the next batch; false if none is left. */
async function runNext(): Promise<boolean> {
  const batch = batches.shift();
  if (batch === undefined) return false;
  runs.push(await run(batch));
  return true;
}

function run(files: readonly string[]): Promise<FileRun> {
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
    onLine: (line) => void kept?.write(`${line}\n`),
  });
}

/** The skipped tests, the failures, the longest files and the counts come last, because often only the end is read. */
function summarize(note = ""): void {
  const { counts, points, failures } = summarizeTap(runs.map(({ tap }) => tap).join(""));
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
  list("failed", failures.toSorted());
  const longest = Object.entries(times).toSorted(([, one], [, other]) => other - one);
  if (longest.length > 1)
    list(
      "longest",
      longest.slice(0, 10).map(([file, ms]) => `  ${String(Math.round(ms / 1000))} s ${file}`),
    );
  // The failed tests again by name, because logs are often truncated to their last lines.
  list(
    "these failed",
    failures.toSorted().map((one) => one.split("\n", 1).join("")),
  );
  console.log(`${note}\n${formatCounts(counts)}`);
  process.exitCode = note === "" && counts.failed === 0 && counts.passed > 0 ? 0 : 1;
}

function readArguments(): { tapFile: string | undefined; tiers: readonly Tier[]; avaArguments: string[] } {
  const avaArguments = process.argv.slice(2);
  const hasOption = (name: string): boolean => {
    const at = avaArguments.indexOf(name);
    if (at !== -1) avaArguments.splice(at, 1);
    return at !== -1;
  };
  const [isAll, isDeep] = [hasOption("--all"), hasOption("--deep")];
  const at = avaArguments.indexOf("--tap-file");
  const tapFile = at === -1 ? undefined : avaArguments.splice(at, 2)[1];
  return { tapFile, tiers: isAll ? ["deep", "basic"] : isDeep ? ["deep"] : ["basic"], avaArguments };
}
