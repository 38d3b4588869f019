/** `node count-tap.ts FILE`: prints `N passed, N failed, N skipped`. Fails when a test failed or none passed. */
import { readFile } from "node:fs/promises";
import { formatCounts, summarizeTap } from "./tap.ts";

const file = process.argv[2];
if (file === undefined) throw new Error("name the file that `npm test -- --tap-file FILE` wrote");
const { counts, isWhole } = summarizeTap(await readFile(file, "utf8"));
console.log(formatCounts(counts));
process.exitCode = isWhole && counts.failed === 0 && counts.passed > 0 ? 0 : 1;
