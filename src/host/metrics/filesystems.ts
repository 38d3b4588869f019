/** The mounted filesystems that hold data, and how full they are. */
import { readFile, statfs } from "node:fs/promises";
import { mapBounded } from "../../lib/map-bounded.ts";
import { parseMounts, type Mount } from "../../sys/mountinfo.ts";

export interface Filesystem {
  readonly path: string;
  readonly device: string;
  readonly type: string;
  readonly sizeBytes: number;
  readonly usedBytes: number;
  readonly availableBytes: number;
  /** Absent for filesystems that create inodes on demand, such as btrfs. */
  readonly inodes?: number;
  readonly usedInodes?: number;
}

export interface FilesystemsOptions {
  /** The kernel's list of mounts, as this process sees it (proc_pid_mountinfo(5)). */
  mountinfo?: string;
}

/**
 * Filesystems on the kernel or on a device of this host. Network filesystems are excluded, because a server that does not answer
 * would block a thread forever. Filesystems that store nothing or only show parts of others are excluded, too.
 */
const localTypes =
  /^(ext[234]|xfs|btrfs|zfs|f2fs|jfs|reiserfs|bcachefs|nilfs2|vfat|exfat|ntfs3?|hfsplus|udf|tmpfs|overlay)$/;
/** Mount points of one container or one program, which are excluded. */
const systemMounts = /^\/(proc|sys|dev|run|var\/lib\/(docker|containers?))(\/|$)/;
const measuredAtOnce = 4;

/** By path; each device once, at its first mount point. */
export async function readFilesystems({
  mountinfo = "/proc/self/mountinfo",
}: FilesystemsOptions = {}): Promise<Filesystem[]> {
  const mounts = parseMounts(await readFile(mountinfo, "utf8"));
  const seen = new Set<string>();
  const chosen = mounts.filter(({ device, mountPoint, type }) => {
    if (!localTypes.test(type) || systemMounts.test(mountPoint) || seen.has(device)) return false;
    seen.add(device);
    return true;
  });
  const measured = await mapBounded(chosen, measuredAtOnce, measure);
  return measured
    .filter((filesystem) => filesystem !== undefined)
    .toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

async function measure({ mountPoint: path, source: device, type }: Mount): Promise<Filesystem | undefined> {
  // The file system may be unmounted, or not accessible to this process.
  const stats = await statfs(path).catch(() => undefined);
  if (stats === undefined || stats.blocks === 0) return undefined;
  const { bsize, blocks, bfree, bavail, files, ffree } = stats;
  return {
    ...{ path, device, type },
    sizeBytes: blocks * bsize,
    usedBytes: (blocks - bfree) * bsize,
    availableBytes: bavail * bsize,
    ...(files > 0 && { inodes: files, usedInodes: files - ffree }),
  };
}
