/**
 * Creates paths that the engine would otherwise create as root inside a user's directories, where their owner could
 * not remove them: working directories, and mount targets inside binds.
 */
import { join, relative, resolve } from "node:path";
import type { ImageInspectInfo } from "dockerode";
import { SvcError } from "../../errors.ts";
import { isBelow, isInside } from "../../lib/paths.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { OwnedTree } from "../../run-as/owned-tree.ts";
import type { RunnableApp } from "../runnable-app.ts";

export interface TargetedMount {
  /** `bind`, or a type that never mounts a directory of the app. */
  readonly type: string;
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/** Paths of one container. Relative paths start at its root directory. */
export interface ContainerPaths {
  readonly mounts: readonly TargetedMount[];
  /** Empty: the root directory. */
  readonly workingDir: string;
}

/** Paths that containers inherit from their image. */
export function imagePaths(image: ImageInspectInfo | undefined): ContainerPaths {
  const { Volumes: volumes, WorkingDir: workingDir = "" } = (image?.Config ?? {}) as ImagePaths;
  const mounts = Object.keys(volumes ?? {}).map((target) => ({
    ...{ type: "volume", source: "", target, readOnly: false },
  }));
  return { mounts, workingDir };
}

interface ImagePaths {
  readonly Volumes?: object | null;
  readonly WorkingDir?: string;
}

/** The engine mounts these into every container. */
const engineMounts: readonly TargetedMount[] = [
  ...["/dev/mqueue", "/dev/pts", "/dev/shm", "/sys/fs/cgroup"].map((target) => ({ type: "tmpfs", target })),
  ...["/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/sbin/docker-init"].map((target) => ({
    type: "file",
    target,
  })),
].map((mount) => ({ ...mount, source: "", readOnly: false }));

/**
 * Creates these paths as the app's owner, before the engine starts its containers. Does nothing for root's apps. The
 * engine still creates missing directories behind a symlink.
 * @throws SvcError `denied` if the owner cannot write to a directory
 */
export async function makeMountTargets(
  userHelpers: Pick<UserHelpers, "tree">,
  app: Pick<RunnableApp, "directory" | "ownerUid" | "uid">,
  containers: readonly ContainerPaths[],
): Promise<void> {
  if (app.ownerUid === 0) return;
  const tree = await userHelpers.tree(app.directory, app.uid);
  const isFile = async ({ type, source }: TargetedMount): Promise<boolean> => {
    const isOwn = type === "bind" && isInside(app.directory, source);
    return type === "file" || (isOwn && (await tree.heldType(relative(app.directory, source))) === "file");
  };
  for (const { mounts: written, workingDir } of containers) {
    const mounts = written.map((mount) => ({ ...mount, target: resolve("/", mount.target) }));
    const inBind = (inside: string): string | undefined => pathInBind(app.directory, mounts, inside);
    const ownDir = inBind(workingDir);
    if (ownDir !== undefined) await makePath(tree, ownDir, false);
    for (const mount of [...mounts, ...engineMounts]) {
      const path = inBind(mount.target);
      if (path !== undefined) await makePath(tree, path, await isFile(mount));
    }
  }
}

/**
 * The path in the app's directory for a path of a container; `undefined` if it is not below a writable bind.
 * @param mounts with absolute, normalized targets
 */
function pathInBind(directory: string, mounts: readonly TargetedMount[], inside: string): string | undefined {
  const path = resolve("/", inside);
  const outer = mounts
    .filter(({ target }) => target !== path && isBelow(target, path))
    .reduce<TargetedMount | undefined>(
      (deepest, mount) => (mount.target.length > (deepest?.target.length ?? 0) ? mount : deepest),
      undefined,
    );
  if (outer?.type !== "bind" || outer.readOnly || !isInside(directory, outer.source)) return undefined;
  return join(relative(directory, outer.source), relative(outer.target, path));
}

/** @param path relative to the app's directory */
async function makePath(tree: OwnedTree, path: string, isFile: boolean): Promise<void> {
  try {
    if (await tree.has(path)) return;
    await (isFile ? tree.writeFile(path, "") : tree.makeDirs([path]));
  } catch (error) {
    // A parent is not a directory; the owner may have created it for the container.
    if (!(error instanceof SvcError) || error.code !== "failed_precondition") throw error;
  }
}
