/** Which files `npm test` runs, in which order, and which of them together. */
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { readTestTimes } from "./test-times.ts";

const root = join(import.meta.dirname, "../..");

/** Imports of what starts a daemon, an engine or a systemd of its own, and folders whose tests do so by other ways. */
const slowImports =
  /from "[^"]*support\/(?:daemon[a-z-]*|docker[a-z-]*|compose-test|container-tests|systemd|s3-server)\.ts"/;
const slowFolders = ["attack", "build", "clients", "console", "e2e", "examples", "faults", "files", "fuzz"];
/** Others that take long, so that a fresh checkout is quick, too. */
const slowFiles = [
  "test/audit/audit-trail.test.ts",
  "test/backups/age.test.ts",
  "test/cli/hostile-daemon.test.ts",
  "test/codegen/generation.test.ts",
  "test/docker/watched-engine.test.ts",
  "test/identity/archive-property.test.ts",
  "test/identity/copy-tree.test.ts",
  "test/identity/hostile-trees.test.ts",
  "test/packages/git-limits.test.ts",
  "test/packages/git-packages.test.ts",
  "test/runtimes/outliving.test.ts",
  "test/runtimes/process-runtime.test.ts",
  "test/scheduler/trigger/oracle.test.ts",
  "test/store/corruption.test.ts",
  "test/store/processes.test.ts",
  "test/support/docker.test.ts",
];

/** What takes longer is not quick, milliseconds. */
const quickMs = 3_000;

/** So many quick ones share an AVA, whose own start takes as long as they do. */
const batchFiles = 12;

/**
 * The files to run, those together that one AVA runs: those first that took longest the last time or that are known to be slow,
 * each alone, so that the last of them keeps nobody waiting; then the quick ones, which are all where it shall be quick.
 */
export async function chooseTestFiles(isQuick: boolean): Promise<string[][]> {
  const found = (await Array.fromAsync(glob("test/**/*.test.ts", { cwd: root }))).sort();
  const times = await readTestTimes();
  const timeOf = (file: string): number => times[file] ?? 0;
  const isSlow = async (file: string): Promise<boolean> =>
    slowFiles.includes(file) ||
    slowFolders.includes(file.split("/")[1] ?? "") ||
    slowImports.test(await readFile(join(root, file), "utf8"));
  const slow = await Promise.all(found.map(isSlow));
  const quick = found.filter((file, at) => slow[at] !== true && timeOf(file) <= quickMs);
  const batches = Array.from({ length: Math.ceil(quick.length / batchFiles) }, (_, at) =>
    quick.slice(at * batchFiles, (at + 1) * batchFiles),
  );
  if (isQuick) return batches;
  const others = found.filter((file) => !quick.includes(file));
  return [...others.toSorted((one, other) => timeOf(other) - timeOf(one)).map((file) => [file]), ...batches];
}
