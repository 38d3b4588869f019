/**
 * Whether a container mounts what it was checked for. The engine follows the paths of its mounts as root, each time that it
 * starts a container: an owner who puts a link in the place of a directory between the check and the start, or before
 * the engine starts the container again by itself, would be shown a directory that is not theirs.
 */
import { readFile, realpath } from "node:fs/promises";
import { join, relative } from "node:path";
import type { ContainerRecord } from "../docker/container-record.ts";
import { isInside } from "../lib/is-inside.ts";
import { hostClock } from "./host-clock.ts";
import type { RunnableApp } from "./runtime.ts";

/** A line of mountinfo (proc_pid_mountinfo(5)). */
interface Mount {
  /** `major:minor`. */
  readonly device: string;
  /** The directory of the file system that is mounted. */
  readonly root: string;
  readonly mountPoint: string;
}

/**
 * The path in the container where something else is mounted than its configuration says; `undefined` when all is as it
 * should be, or the container has ended.
 * @param procDir where procfs is mounted
 */
export async function strayMount(
  app: Pick<RunnableApp, "directory">,
  { pid, mounts }: Pick<ContainerRecord, "pid" | "mounts">,
  procDir = "/proc",
): Promise<string | undefined> {
  // The host's clock is root's alone, and an image may have a link in its place.
  const binds = mounts.filter(({ type, source }) => type === "bind" && !hostClock.has(source));
  if (binds.length === 0 || pid === undefined) return undefined;
  const [own, theirs] = await Promise.all([readMounts(`${procDir}/self`), readMounts(`${procDir}/${pid}`)]);
  if (own === undefined || theirs === undefined) return undefined;
  // Down to the app's directory the path is root's: what leads there may be a link.
  const real = await realpath(app.directory);
  return binds.find(({ source, destination }) => {
    const isOwn = isInside(app.directory, source);
    const expected = locate(own, isOwn ? join(real, relative(app.directory, source)) : source);
    const found = theirs.findLast(({ mountPoint }) => mountPoint === destination);
    return found === undefined || found.device !== expected?.device || found.root !== expected.root;
  })?.destination;
}

/** In which file system a path lies, and where there. */
function locate(mounts: readonly Mount[], path: string): Mount | undefined {
  let best: Mount | undefined;
  for (const mount of mounts) {
    // Of two at the same place the later one hides the other.
    if (isInside(mount.mountPoint, path) && mount.mountPoint.length >= (best?.mountPoint.length ?? 0))
      best = mount;
  }
  return best && { ...best, root: join(best.root, relative(best.mountPoint, path)).replace(/(.)\/$/, "$1") };
}

async function readMounts(dir: string): Promise<Mount[] | undefined> {
  const text = await readFile(`${dir}/mountinfo`, "utf8").catch(() => "");
  if (text === "") return undefined;
  return text
    .trimEnd()
    .split("\n")
    .map((line) => {
      const [, , device = "", root = "", mountPoint = ""] = line.split(" ");
      return { device, root: unescape(root), mountPoint: unescape(mountPoint) };
    });
}

/** Spaces and the like are octal. */
function unescape(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}
