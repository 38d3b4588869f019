/**
 * `npm run bench [NAME …]`: bundles, measures, and prints one table, which is also written to `bench/last.md`. Every
 * number has a baseline from the same run, so that the table means the same on every host.
 */
import { glob, writeFile } from "node:fs/promises";
import { arch, availableParallelism, release } from "node:os";
import { join } from "node:path";
import { runProgram } from "./support/processes.ts";
import { formatTable, isMet, type Bench, type Result } from "./support/result.ts";

const root = join(import.meta.dirname, "..");
const lastFile = join(import.meta.dirname, "last.md");

await runProgram(process.execPath, join(root, "src/build/bundle.ts"));
const wanted = process.argv.slice(2);
const benches = (await loadBenches()).filter(({ name }) => wanted.length === 0 || wanted.includes(name));
const results: Result[] = [];
const failed: string[] = [];
for (const { name, run } of benches) {
  console.error(`${name} …`);
  try {
    results.push(...(await run()));
  } catch (error) {
    failed.push(name);
    console.error(error);
  }
}
const machine = `Node ${process.version}, Linux ${release()} ${arch()}, ${availableParallelism()} processors.`;
const text = `${formatTable(results)}\n\n${machine}\n`;
await writeFile(lastFile, text);
console.log(text);
console.log(`${results.filter(isMet).length} of ${results.length} goals met.`);
if (failed.length > 0) console.log(`Failed: ${failed.join(", ")}.`);
process.exitCode = failed.length > 0 || results.length === 0 ? 1 : 0;

async function loadBenches(): Promise<Bench[]> {
  const files = await Array.fromAsync(glob("*.bench.ts", { cwd: import.meta.dirname }));
  const modules = files
    .sort()
    .map((file) => import(join(import.meta.dirname, file)) as Promise<{ bench: Bench }>);
  return (await Promise.all(modules)).map(({ bench }) => bench);
}
