/**
 * Directories of users in a directory of the daemon's own: `<store>/apps/<id>`. The daemon makes them and, once they are
 * empty, removes them; since nobody else writes to the parent, nothing can be swapped under it.
 */
import { chmod, lchown, lstat, mkdir, open, rmdir } from "node:fs/promises";
import { dirname } from "node:path";
import { SvcError } from "../errors.ts";
import { hasCode } from "./helper/request-error.mjs";
import type { User } from "./user.ts";

/** Its owner's, and nobody else's. */
export const privateMode = 0o700;

/**
 * @param selfUid The daemon's uid.
 * @throws SvcError `already_exists`; `failed_precondition` when others may write to the parent.
 */
export async function makeOwnedDir(path: string, user: User, selfUid: number): Promise<void> {
  await assertOwnParent(path, selfUid);
  try {
    await mkdir(path, privateMode);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
    throw new SvcError("already_exists", "a directory of that name exists already", { cause: error });
  }
  try {
    // The umask has had its say: the mode asked for is exact.
    await chmod(path, privateMode);
    if (user.uid !== selfUid) await lchown(path, user.uid, user.gid);
    await syncDirectory(dirname(path));
  } catch (error) {
    await rmdir(path);
    throw error;
  }
}

/**
 * Removes such a directory, which is empty by now; nothing there is fine.
 * @returns Bytes that the directory itself had.
 */
export async function removeEmptyDir(path: string): Promise<number> {
  try {
    const { blocks } = await lstat(path);
    await rmdir(path);
    await syncDirectory(dirname(path));
    return blocks * 512;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return 0;
    throw error;
  }
}

/**
 * Whether there is such a directory.
 * @throws SvcError `failed_precondition` for a symlink, a file, somebody else's directory.
 */
export async function isOwnedDir(path: string, uid: number, selfUid: number): Promise<boolean> {
  await assertOwnParent(path, selfUid);
  try {
    const stats = await lstat(path);
    if (stats.isDirectory() && stats.uid === uid) return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
  throw new SvcError("not_possible", `${path} is no directory of uid ${uid}`);
}

async function assertOwnParent(path: string, selfUid: number): Promise<void> {
  const parent = dirname(path);
  const { uid, mode } = await lstat(parent);
  if (uid !== selfUid || (mode & 0o022) !== 0) {
    throw new SvcError(
      "not_possible",
      `${parent} must belong to uid ${selfUid} and be writable by nobody else (chmod go-w)`,
    );
  }
}

/** Makes the entries of a directory durable. */
export async function syncDirectory(path: string): Promise<void> {
  await using directory = await open(path, "r");
  await directory.sync();
}
