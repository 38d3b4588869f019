/**
 * `node count-tap.ts FILE…`: prints the failed tests and `N passed, N failed, N skipped`. Fails if a test failed, or if a
 * file has none that passed.
 */
import { readFile } from "node:fs/promises";
import { formatCounts, summarizeTap } from "./tap.ts";

const files = process.argv.slice(2);
if (files.length === 0) throw new Error("name the files that `npm test -- --tap-file FILE` wrote");
const summaries = await Promise.all(files.map(async (file) => summarizeTap(await readFile(file, "utf8"))));
const sum = (outcome: "passed" | "failed" | "skipped"): number =>
  summaries.reduce((total, { counts }) => total + counts[outcome], 0);
const counts = { passed: sum("passed"), failed: sum("failed"), skipped: sum("skipped") };
// Repeated in short, because often only the end of a long log is kept.
const failures = summaries.flatMap((summary) => summary.failures);
if (failures.length > 0) console.log(`failed:\n${failures.map(beginningOf).join("\n")}\n`);
console.log(formatCounts(counts));
const isSound = summaries.every(({ isComplete, counts: { passed } }) => isComplete && passed > 0);
process.exitCode = isSound && counts.failed === 0 ? 0 : 1;

function beginningOf(failure: string): string {
  return failure.split("\n").slice(0, 20).join("\n");
}
