/** Which files `npm test` runs, and in which order. */
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { readTestTimes } from "./test-times.ts";

const root = join(import.meta.dirname, "../..");

/** Imports of what starts a daemon, an engine or a systemd of its own, and folders whose tests do so by other ways. */
const slowImports =
  /from "[^"]*support\/(?:daemon[a-z-]*|docker[a-z-]*|compose-test|container-tests|systemd|s3-server)\.ts"/;
const slowFolders = ["attack", "clients", "console", "e2e", "examples", "faults", "files", "fuzz"];

/** What takes longer is not quick, milliseconds. */
const quickMs = 3_000;

/**
 * The files to run: those first that took longest the last time or that are known to be slow, so that the last of them keeps
 * nobody waiting; where it shall be quick the others alone.
 */
export async function chooseTestFiles(isQuick: boolean): Promise<string[]> {
  const found = (await Array.fromAsync(glob("test/**/*.test.ts", { cwd: root }))).sort();
  const times = await readTestTimes();
  const timeOf = (file: string): number => times[file] ?? 0;
  const isSlow = async (file: string): Promise<boolean> =>
    slowFolders.includes(file.split("/")[1] ?? "") ||
    slowImports.test(await readFile(join(root, file), "utf8"));
  const slow = await Promise.all(found.map(isSlow));
  const quick = found.filter((file, at) => slow[at] !== true && timeOf(file) <= quickMs);
  if (isQuick) return quick;
  const others = found.filter((file) => !quick.includes(file));
  return [...others.toSorted((one, other) => timeOf(other) - timeOf(one)), ...quick];
}
