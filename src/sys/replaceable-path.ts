/** Finds directories on a path that another user could replace. */
import type { Stats } from "node:fs";
import { lstat, readlink } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { hasAccessList } from "./access-list.ts";

/**
 * Returns the first entry on a path, including link targets, that another user could rename or replace. Root and members of
 * this process's group are not other users.
 * @param ownerUid allowed owner of the entries, besides root
 * @returns undefined if no entry is replaceable; missing entries do not count
 */
export async function findReplaceable(path: string, ownerUid: number): Promise<string | undefined> {
  for await (const [entry, status] of entriesOn(path, new Set()))
    if (![ownerUid, 0].includes(status.uid) || (await isWritableByOthers(entry, status))) return entry;
  return undefined;
}

/** With the sticky bit, others can rename only their own entries. */
async function isWritableByOthers(entry: string, status: Stats): Promise<boolean> {
  if (!status.isDirectory() || (status.mode & 0o1000) !== 0 || (status.mode & 0o022) === 0) return false;
  const ownGid = process.getegid?.() ?? 0;
  if (status.gid !== ownGid || (status.mode & 0o002) !== 0) return true;
  // With an access control list, the group bits of the mode are the mask of the list, which can name other users (acl(5)).
  return hasAccessList(entry);
}

async function* entriesOn(path: string, seen: Set<string>): AsyncGenerator<[string, Stats]> {
  if (seen.has(path)) return;
  seen.add(path);
  if (dirname(path) !== path) yield* entriesOn(dirname(path), seen);
  const status = await lstat(path).catch((error: unknown) => {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT" && code !== "ENOTDIR") throw error;
  });
  if (status === undefined) return;
  yield [path, status];
  if (status.isSymbolicLink()) yield* entriesOn(resolve(dirname(path), await readlink(path)), seen);
}
