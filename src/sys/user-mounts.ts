/** File systems that users have mounted: a program of the user answers for them (FUSE), late or never. */
import { readFile, realpath } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { SvcError } from "../errors.ts";
import { parseMounts } from "./mountinfo.ts";

/**
 * Whether a user other than root has mounted a file system at the path, which this does not access.
 * @param path its parent directory is in no such file system
 */
export async function isMountOfUser(path: string): Promise<boolean> {
  const text = await readFile("/proc/self/mountinfo", "utf8");
  // A host with many containers has thousands of other mounts.
  if (!text.includes(",user_id=")) return false;
  const ofUsers = parseMounts(text).filter(({ options }) => /(?:^|,)user_id=[1-9]/.test(options));
  // The store's location may contain symlinks.
  const parent = await realpath(dirname(path)).catch(() => dirname(path));
  return ofUsers.some(({ mountPoint }) => mountPoint === join(parent, basename(path)));
}

/**
 * Call before the daemon itself accesses a directory of a user: each call that waits for a program of the user takes one of
 * the daemon's few threads for file systems.
 * @param path as for {@link isMountOfUser}
 * @throws SvcError `not_possible`
 */
export async function requireNoUserMount(path: string): Promise<void> {
  if (await isMountOfUser(path))
    throw new SvcError("not_possible", `a user has mounted a file system at ${path}: unmount it first`);
}
