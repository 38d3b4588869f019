/**
 * `npm test [-- [--tap-file FILE] [AVA's arguments]]`: says what this machine lacks, runs AVA, and ends with the counts,
 * after the failures and what was skipped. `--tap-file` keeps AVA's own words for whoever counts afterwards.
 * Fails when a test failed, when none ran, or when AVA died halfway.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { missing } from "../../.ci/optional.ts";
import { formatCounts, parseTestPoint, summarizeTap } from "./tap.ts";

const root = join(import.meta.dirname, "../..");
const { tapFile, avaArguments } = readArguments();

const lacks = await missing({
  root: "tests that act as other users are skipped; run as root for them.",
  dockerd: "tests that need a container engine are skipped.",
  go: "openapi/base.json is taken as committed, not generated afresh.",
});
for (const line of lacks) console.log(line);

const ava = spawn(join(root, "node_modules/.bin/ava"), ["--tap", ...avaArguments], {
  cwd: root,
  stdio: ["ignore", "pipe", "inherit"],
});
const exit = once(ava, "close") as Promise<[number | null, NodeJS.Signals | null]>;
const tap = await show(ava.stdout);
const [exitCode, signal] = await exit;

const { counts, points, isWhole } = summarizeTap(tap);
for (const outcome of ["skipped", "failed"] as const) {
  const titles = points.filter((point) => point.outcome === outcome).map((point) => `  ${point.title}`);
  if (titles.length > 0) console.log(`\n${outcome}:\n${titles.sort().join("\n")}`);
}
if (!isWhole) {
  // AVA 8 itself breaks when it wants to name in TAP what hangs: the file after the last results is the one.
  console.log(
    `\nThe test runner ended early (${signal ?? `exit code ${String(exitCode)}`}); a test may hang.`,
  );
}
console.log(`\n${formatCounts(counts)}`);
const isGood = exitCode === 0 && isWhole && counts.failed === 0 && counts.passed > 0;
process.exitCode = isGood ? 0 : 1;

/** Prints each result as it comes, failures with all that AVA says of them; returns the whole stream. */
async function show(stream: NodeJS.ReadableStream): Promise<string> {
  const marks = { passed: "✔", failed: "✘", skipped: "-" };
  const lines: string[] = [];
  // Kept line by line, so that what ran can be counted even when this run is ended from outside.
  const file = tapFile === undefined ? undefined : createWriteStream(tapFile);
  let isFailure = false;
  for await (const line of createInterface({ input: stream })) {
    lines.push(line);
    file?.write(`${line}\n`);
    const point = parseTestPoint(line);
    if (point !== undefined) {
      isFailure = point.outcome === "failed";
      console.log(`${marks[point.outcome]} ${point.title}`);
    } else if (/^1\.\.\d+$/.test(line)) {
      isFailure = false;
    } else if (isFailure) {
      console.log(line);
    }
  }
  file?.end();
  return `${lines.join("\n")}\n`;
}

function readArguments(): { tapFile: string | undefined; avaArguments: string[] } {
  const avaArguments = process.argv.slice(2);
  const at = avaArguments.indexOf("--tap-file");
  const tapFile = at === -1 ? undefined : avaArguments.splice(at, 2)[1];
  return { tapFile, avaArguments };
}
