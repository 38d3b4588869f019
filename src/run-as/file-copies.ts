/** Private copies of files, for a process that may read only these. */
import { chmod, chown, mkdir, mkdtemp, readdir, lstat, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";

/** The files that a process may read. Paths are absolute. */
export interface CopiedFiles {
  readonly files: ReadonlyMap<string, Uint8Array>;
  /** Directories that must exist; those of the files always do. */
  readonly directories: Iterable<string>;
}

/**
 * Writes the files below a new directory, each at its path. Only root can change them, so that root can remove them
 * safely, and only the group can read them.
 * @param prefix start of the directory's path, in a directory that every user can enter
 * @param gid the group; `undefined`: only this process's user can read them
 * @returns the directory
 */
export async function writeCopies(
  prefix: string,
  { files, directories }: CopiedFiles,
  gid: number | undefined,
): Promise<string> {
  const root = await mkdtemp(prefix);
  try {
    const made = new Set<string>([root]);
    for (const path of directories) await makeDirectory(join(root, resolve(path)), made);
    for (const [path, content] of files) {
      const copy = join(root, path);
      await makeDirectory(dirname(copy), made);
      await writeFile(copy, content, { flag: "wx" });
      await chmod(copy, 0o644);
    }
    if (gid !== undefined) {
      await chown(root, -1, gid);
      await chmod(root, 0o750);
    }
    return root;
  } catch (error) {
    await removeCopies(root);
    throw error;
  }
}

export async function removeCopies(root: string): Promise<void> {
  await rm(root, { recursive: true, force: true });
}

/** Removes the copies that a killed process left. @param prefix as in {@link writeCopies} */
export async function removeLeftCopies(prefix: string): Promise<void> {
  const uid = process.geteuid?.();
  for (const name of await readdir(dirname(prefix))) {
    const path = join(dirname(prefix), name);
    if (!name.startsWith(basename(prefix))) continue;
    // Others can create entries of that name in a shared directory, but not give them away.
    const stats = await lstat(path).catch(() => undefined);
    if (stats?.isDirectory() === true && stats.uid === uid) await removeCopies(path);
  }
}

/** Not with `recursive`, because the process's umask may keep the group out. */
async function makeDirectory(path: string, made: Set<string>): Promise<void> {
  if (made.has(path)) return;
  await makeDirectory(dirname(path), made);
  await mkdir(path);
  await chmod(path, 0o755);
  made.add(path);
}
