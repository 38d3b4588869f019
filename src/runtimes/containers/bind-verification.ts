/**
 * Verifies that a container mounts what was checked. The engine resolves mount paths as root at every start of a
 * container: an owner who replaces a directory by a symlink between the check and the start, or before a restart by
 * the engine, would otherwise see a directory of somebody else.
 */
import { lstat, readFile, realpath } from "node:fs/promises";
import { join, relative } from "node:path";
import type { ContainerRecord } from "../../engine/container-record.ts";
import { isInside } from "../../lib/paths.ts";
import { parseMounts, type Mount } from "../../sys/mountinfo.ts";
import { isMountOfUser } from "../../sys/user-mounts.ts";
import { clockFiles } from "./host-clock.ts";
import type { RunnableApp } from "../runnable-app.ts";

/**
 * Returns the path in the container at which something other than its configuration is mounted. A container that has
 * ended has no mounts: its current sources are checked instead.
 */
export async function changedMount(
  app: Pick<RunnableApp, "directory">,
  { pid, mounts }: Pick<ContainerRecord, "pid" | "mounts">,
): Promise<string | undefined> {
  // Only root controls the host's time zone files, and an image may have a symlink at their path.
  const binds = mounts.filter(({ type, source }) => type === "bind" && !clockFiles.has(source));
  if (binds.length === 0) return undefined;
  const [own, others] = await Promise.all([
    readMounts("/proc/self"),
    pid === undefined ? undefined : readMounts(`/proc/${pid}`),
  ]);
  if (own === undefined || others === undefined) return changedLink(app, binds);
  // Root controls the path down to the app's directory, so symlinks in it are fine.
  const real = await realpath(app.directory);
  return binds.find(({ source, destination }) => {
    const isOwn = isInside(app.directory, source);
    const expected = locate(own, isOwn ? join(real, relative(app.directory, source)) : source);
    const found = others.findLast(({ mountPoint }) => mountPoint === destination);
    return found === undefined || found.device !== expected?.device || found.root !== expected.root;
  })?.destination;
}

/** The first mount whose source, or a parent of it in the app's directory, is a symlink or mounted by a user. */
async function changedLink(
  { directory }: Pick<RunnableApp, "directory">,
  binds: ContainerRecord["mounts"],
): Promise<string | undefined> {
  for (const { source, destination } of binds) {
    let path = directory;
    for (const name of isInside(directory, source) ? relative(directory, source).split("/") : []) {
      path = join(path, name);
      if (await isMountOfUser(path)) return destination;
      const stats = await lstat(path).catch(() => undefined);
      // An upgrade may have removed it. The rest of the path then contains nothing of the owner's.
      if (stats === undefined) break;
      if (stats.isSymbolicLink()) return destination;
    }
  }
  return undefined;
}

/** Finds the file system of a path, and its path there. */
function locate(mounts: readonly Mount[], path: string): Mount | undefined {
  let best: Mount | undefined;
  for (const mount of mounts) {
    // Of two mounts at the same path, the later one hides the earlier one.
    if (isInside(mount.mountPoint, path) && mount.mountPoint.length >= (best?.mountPoint.length ?? 0))
      best = mount;
  }
  return best && { ...best, root: join(best.root, relative(best.mountPoint, path)).replace(/(.)\/$/, "$1") };
}

async function readMounts(dir: string): Promise<Mount[] | undefined> {
  const text = await readFile(`${dir}/mountinfo`, "utf8").catch(() => "");
  if (text === "") return undefined;
  return parseMounts(text);
}
