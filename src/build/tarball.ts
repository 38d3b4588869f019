/** Creates reproducible archives: the same bytes for every builder, time and path. */
import { execFile } from "node:child_process";
import { chmod, readFile, readdir, rm, stat, utimes, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";

const run = promisify(execFile);

/** Sets modes independent of the builder's umask, and a fixed date. @param epoch seconds since 1970 */
export async function normalize(dir: string, epoch: number): Promise<void> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  for (const entry of entries) {
    if (entry.isSymbolicLink()) continue;
    const path = join(entry.parentPath, entry.name);
    const isProgram = entry.isDirectory() || ((await stat(path)).mode & 0o100) !== 0;
    await chmod(path, isProgram ? 0o755 : 0o644);
    await utimes(path, epoch, epoch);
  }
  await chmod(dir, 0o755);
  await utimes(dir, epoch, epoch);
}

/** Packs the directory, with its name, as a `.tar.gz`. */
export async function makeTarball(dir: string, file: string, epoch: number): Promise<void> {
  await normalize(dir, epoch);
  const tar = `${file}.tar`;
  const owner = ["--owner=0", "--group=0", "--numeric-owner", "--sort=name", "--format=gnu"];
  await run("tar", ["--create", "--file", tar, ...owner, "--directory", dirname(dir), basename(dir)]);
  // The highest level would take twice as long for half a percent.
  await writeFile(file, gzipSync(await readFile(tar)));
  await rm(tar);
}
