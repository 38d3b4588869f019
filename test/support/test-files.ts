/** The files that `npm test` and `npm run test:all` run, their order, and their batches. */
import { glob, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { readTestTimes } from "./test-times.ts";

const root = join(import.meta.dirname, "../..");

/** `basic` is what `npm test` runs: units, components and one tour of each runtime and surface. `deep` is the rest. */
export type Tier = "basic" | "deep";

/** Folders of `deep` tests: attacks, cases, faults, and scenarios that take many steps, engines or clients. */
const deepFolders = ["attack", "cases", "faults", "fuzz", "scenarios"];

/** A file above this duration in milliseconds has a separate AVA process and starts early. */
const longMs = 15_000;
/** Files that share an AVA process, because starting one takes a second of CPU time. */
const batchFiles = { basic: 12, deep: 3 };
const declaredTimeout = /\bt\.timeout\(([^)]*)/g;
const localImport = /\bfrom "(\.[^"]+\.ts)"/g;
const constant = /\b[a-z]\w*\b/gi;
const product = /\d[\d_]*(?: \* \d[\d_]*)*/g;

/** Batches of files, each for one AVA process, the longest first. */
export async function chooseTestFiles(tier: Tier): Promise<string[][]> {
  const found = (await Array.fromAsync(glob("test/**/*.test.ts", { cwd: root }))).sort();
  const files = found.filter((file) => deepFolders.includes(file.split("/")[1] ?? "") === (tier === "deep"));
  const measured = await readTestTimes();
  const times = new Map<string, number>();
  for (const file of files) times.set(file, measured[file] ?? (await declaredMs(file)));
  const timeOf = (file: string): number => times.get(file) ?? 0;
  const long = files.filter((file) => timeOf(file) > longMs);
  return [
    ...long.toSorted((one, other) => timeOf(other) - timeOf(one)).map((file) => [file]),
    ...batchesOf(
      files.filter((file) => !long.includes(file)),
      batchFiles[tier],
    ),
  ];
}

/**
 * An estimate for files that have not run here: a tenth of the timeouts that its tests set, in the file or in a module
 * that it imports.
 */
async function declaredMs(file: string): Promise<number> {
  const text = await readFile(join(root, file), "utf8");
  const modules = [...text.matchAll(localImport)].map(([, path = ""]) => join(root, dirname(file), path));
  const texts = [text, ...(await Promise.all(modules.map((path) => readFile(path, "utf8"))))];
  return texts.reduce((sum, each) => sum + timeoutsIn(each), 0) / 10;
}

/** The sum of the timeouts in milliseconds. Constants have their value, and of several numbers the last one counts. */
export function timeoutsIn(text: string): number {
  const valueOf = (name: string): string => new RegExp(`\\bconst ${name} = (.*);`).exec(text)?.[1] ?? name;
  const timeouts = [...text.matchAll(declaredTimeout)].map(([, argument = ""]) => {
    const last = argument.replaceAll(constant, valueOf).match(product)?.at(-1) ?? "0";
    return last.split(" * ").reduce((all, number) => all * Number(number.replaceAll("_", "")), 1);
  });
  return timeouts.reduce((sum, ms) => sum + ms, 0);
}

/**
 * Distributes files in turn, so that files of one folder, which often wait for the same things, are in different
 * batches.
 */
function batchesOf(files: readonly string[], size: number): string[][] {
  const count = Math.ceil(files.length / size);
  return Array.from({ length: count }, (_, at) => files.filter((_file, index) => index % count === at));
}
