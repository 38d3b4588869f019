/** Which files `npm test` runs, and in which order. */
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";

const root = join(import.meta.dirname, "../..");

/** Imports of what starts a daemon, an engine or a systemd of its own, and folders whose tests do so by other ways. */
const slowImports =
  /from "[^"]*support\/(?:daemon|docker[a-z-]*|compose-test|container-tests|systemd|s3-server)\.ts"/;
const slowFolders = ["attack", "clients", "console", "e2e", "examples", "faults", "files", "fuzz"];

/** The files to run, the slow ones first, so that the last of them keeps nobody waiting; the others alone where it shall be quick. */
export async function chooseTestFiles(isQuick: boolean): Promise<string[]> {
  const found = (await Array.fromAsync(glob("test/**/*.test.ts", { cwd: root }))).sort();
  const isSlow = async (file: string): Promise<boolean> =>
    slowFolders.includes(file.split("/")[1] ?? "") ||
    slowImports.test(await readFile(join(root, file), "utf8"));
  const slow = await Promise.all(found.map(isSlow));
  const quick = found.filter((_file, at) => slow[at] !== true);
  return isQuick ? quick : [...found.filter((_file, at) => slow[at]), ...quick];
}
