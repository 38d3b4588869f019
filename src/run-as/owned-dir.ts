/**
 * Directories of users in a daemon-owned directory: `<store>/apps/<id>`. The daemon creates them and removes them once
 * they are empty. Nobody else can write to the parent, so no entry can be swapped.
 */
import { chmod, lchown, lstat, mkdir, open, rmdir } from "node:fs/promises";
import { dirname } from "node:path";
import { SvcError } from "../errors.ts";
import { requireNoUserMount } from "../sys/user-mounts.ts";
import { hasCode } from "./helper/request-error.mjs";
import type { User } from "./user.ts";

/** Accessible only to its owner. */
export const privateMode = 0o700;

/**
 * @param selfUid the daemon's uid
 * @throws SvcError `already_exists`; `not_possible` if others may write to the parent
 */
export async function makeOwnedDir(path: string, user: User, selfUid: number): Promise<void> {
  await assertOwnParent(path, selfUid);
  try {
    await mkdir(path, privateMode);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
    throw new SvcError("already_exists", "a directory with this name already exists", { cause: error });
  }
  try {
    // `mkdir` applies the umask; this mode is exact.
    await chmod(path, privateMode);
    if (user.uid !== selfUid) await lchown(path, user.uid, user.gid);
    await syncDirectory(dirname(path));
  } catch (error) {
    await rmdir(path);
    throw error;
  }
}

/**
 * Removes an empty directory of a user. Succeeds if it does not exist.
 * @returns size of the directory itself in bytes
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
 * Whether the directory exists.
 * @throws SvcError `not_possible` for a symlink, a file, a directory of another user, or a file system that a user has mounted
 */
export async function isOwnedDir(path: string, uid: number, selfUid: number): Promise<boolean> {
  await assertOwnParent(path, selfUid);
  await requireNoUserMount(path);
  try {
    const stats = await lstat(path);
    if (stats.isDirectory() && stats.uid === uid) return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
  throw new SvcError("not_possible", `${path} is not a directory of uid ${uid}`);
}

async function assertOwnParent(path: string, selfUid: number): Promise<void> {
  const parent = dirname(path);
  const { uid, mode } = await lstat(parent);
  if (uid !== selfUid || (mode & 0o022) !== 0) {
    throw new SvcError(
      "not_possible",
      `${parent} must belong to uid ${selfUid}, and no other user may write to it: run chown ${selfUid} and chmod go-w on it`,
    );
  }
}

/** Makes the entries of a directory durable. */
export async function syncDirectory(path: string): Promise<void> {
  await using directory = await open(path, "r");
  await directory.sync();
}
