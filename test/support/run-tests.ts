/**
 * `npm test [-- [--quick] [--tap-file FILE] [AVA's arguments]]`: says what this machine lacks, runs AVA, and ends with the
 * counts, after the failures and what was skipped. `--quick` leaves out the files that start daemons or container engines, for
 * the loop of an edit. `--tap-file` keeps AVA's own words for whoever counts afterwards.
 * Fails when a test failed, when none ran, or when AVA died halfway.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { missing } from "../../.ci/optional.ts";
import { formatCounts, parseTestPoint, summarizeTap } from "./tap.ts";

const root = join(import.meta.dirname, "../..");
const { tapFile, isQuick, avaArguments } = readArguments();
if (isQuick) avaArguments.push(...(await quickFiles()));

const lacks = await missing({
  root: "tests that act as other users are skipped; run as root for them.",
  dockerd: "tests that need a container engine are skipped.",
  go: "openapi/base.json is taken as committed, not generated afresh.",
});
for (const line of lacks) console.log(line);

const bundle = join(root, "node_modules/.cache/svc-under-test");
const { status } = spawnSync(process.execPath, [join(root, "src/build/bundle.ts"), bundle], {
  stdio: ["ignore", "ignore", "inherit"],
});
if (status !== 0) process.exit(1);

/**
 * With `serial` AVA runs one file after the other, and without it all tests of a file at once. Most of them wait most of the
 * time, so the whole is run by two that share the files.
 */
const lanes = avaArguments.length === 0 || isQuick ? 2 : 1;
// Kept line by line, so that what ran can be counted even when this run is ended from outside.
const file = tapFile === undefined ? undefined : createWriteStream(tapFile);
const ends = await Promise.all(Array.from({ length: lanes }, (_, lane) => runLane(lane)));
file?.end();

const { counts, points, isWhole } = summarizeTap(ends.map(({ tap }) => tap).join(""));
const skipped = points.filter(({ outcome }) => outcome === "skipped").map(({ title }) => `  ${title}`);
if (skipped.length > 0) console.log(`\nskipped:\n${skipped.sort().join("\n")}`);
// At the end and whole, as it is often only the end that is looked at, or kept.
const failures = ends.flatMap((end) => end.failures);
if (failures.length > 0) console.log(`\nfailed:\n${failures.sort().join("\n")}`);
if (!isWhole) {
  // AVA 8 itself breaks when it wants to name in TAP what hangs: the file after the last results is the one.
  const how = ends.map(({ exitCode, signal }) => signal ?? `exit code ${String(exitCode)}`).join(", ");
  console.log(`\nThe test runner ended early (${how}); a test may hang.`);
}
console.log(`\n${formatCounts(counts)}`);
const isGood =
  ends.every(({ exitCode }) => exitCode === 0) && isWhole && counts.failed === 0 && counts.passed > 0;
process.exitCode = isGood ? 0 : 1;

/** One AVA with its share of the files. */
async function runLane(lane: number) {
  const ava = spawn(join(root, "node_modules/.bin/ava"), ["--tap", ...avaArguments], {
    cwd: root,
    env: {
      ...process.env,
      SVC_TEST_MAIN: join(bundle, "svc.cjs"),
      ...(lanes > 1 && { CI_NODE_INDEX: String(lane), CI_NODE_TOTAL: String(lanes) }),
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exit = once(ava, "close") as Promise<[number | null, NodeJS.Signals | null]>;
  const { tap, failures } = await show(ava.stdout);
  const [exitCode, signal] = await exit;
  return { tap, failures, exitCode, signal };
}

/** Prints each result as it comes; returns the whole stream, and each failure with all that AVA says of it. */
async function show(stream: NodeJS.ReadableStream): Promise<{ tap: string; failures: string[] }> {
  const marks = { passed: "✔", failed: "✘", skipped: "-" };
  const lines: string[] = [];
  const failures: string[][] = [];
  let failure: string[] | undefined;
  for await (const line of createInterface({ input: stream })) {
    lines.push(line);
    file?.write(`${line}\n`);
    const point = parseTestPoint(line);
    if (point !== undefined) {
      console.log(`${marks[point.outcome]} ${point.title}`);
      failure = point.outcome === "failed" ? [`  ${point.title}`] : undefined;
      if (failure !== undefined) failures.push(failure);
    } else if (/^1\.\.\d+$/.test(line)) failure = undefined;
    else failure?.push(`  ${line}`);
  }
  return { tap: `${lines.join("\n")}\n`, failures: failures.map((each) => each.join("\n")) };
}

/** Imports of what starts a daemon, an engine or a systemd of its own, and folders whose tests do so by other ways. */
const slowImports =
  /from "[^"]*support\/(?:daemon|docker[a-z-]*|compose-test|container-tests|systemd|s3-server)\.ts"/;
const slowFolders = ["attack", "clients", "console", "e2e", "examples", "faults", "files", "fuzz"];

async function quickFiles(): Promise<string[]> {
  const files = await Array.fromAsync(glob("test/**/*.test.ts", { cwd: root }));
  const isQuickFile = async (file: string): Promise<boolean> =>
    !slowFolders.includes(file.split("/")[1] ?? "") &&
    !slowImports.test(await readFile(join(root, file), "utf8"));
  const chosen = await Promise.all(files.map(isQuickFile));
  return files.filter((_file, at) => chosen[at]).sort();
}

function readArguments(): { tapFile: string | undefined; isQuick: boolean; avaArguments: string[] } {
  const avaArguments = process.argv.slice(2);
  const quickAt = avaArguments.indexOf("--quick");
  if (quickAt !== -1) avaArguments.splice(quickAt, 1);
  const at = avaArguments.indexOf("--tap-file");
  const tapFile = at === -1 ? undefined : avaArguments.splice(at, 2)[1];
  return { tapFile, isQuick: quickAt !== -1, avaArguments };
}
