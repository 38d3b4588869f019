/**
 * Python tools from PyPI in a virtual environment in the checkout's cache: installed once, reused until the list
 * changes.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { access, mkdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const cacheDir = join(import.meta.dirname, "../../node_modules/.cache/svc-python");

/**
 * The directory of the environment's programs. @param requirements path of a `requirements.txt` with exact versions
 * @throws Error without Python 3.11 or older, or without a package index
 */
export async function pythonTools(requirements: string): Promise<string> {
  const list = await readFile(requirements);
  const name = createHash("sha256").update(list).digest("hex").slice(0, 16);
  const dir = join(cacheDir, name);
  const isThere = await access(join(dir, "complete")).then(
    () => true,
    () => false,
  );
  if (!isThere) {
    console.log(`Installing ${list.toString().trim().split("\n").join(", ")} …`);
    await rm(dir, { recursive: true, force: true });
    await mkdir(cacheDir, { recursive: true });
    await run("python3", ["-m", "venv", dir]);
    await run(join(dir, "bin/pip"), [
      "install",
      "--quiet",
      "--disable-pip-version-check",
      "-r",
      requirements,
    ]);
    // Written last, so that an interrupted installation is repeated.
    await mkdir(join(dir, "complete.new"));
    await rename(join(dir, "complete.new"), join(dir, "complete"));
  }
  return join(dir, "bin");
}
