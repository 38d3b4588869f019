import { statfs } from "node:fs/promises";
import type { StatsFs } from "node:fs";
import { dirname } from "node:path";
import { ok, problem, warning, type Check, type Finding } from "./finding.ts";

const mib = 1024 ** 2;
/** Below the first value, writes of the store may fail; below the second, an install may run out of space. */
const [leastBytes, fewBytes] = [64 * mib, 1024 * mib];
const fewInodes = 10_000;

/** Free disk space at the store's directory, or at its nearest existing parent. */
export const checkDisk: Check = async ({ config }) => {
  const { dir } = config.store;
  return diskFinding(dir, await statsOf(dir));
};

export function diskFinding(
  dir: string,
  { bavail, bsize, ffree, files }: Pick<StatsFs, "bavail" | "bsize" | "ffree" | "files">,
): Finding {
  const freeBytes = bavail * bsize;
  const free = `${freeText(freeBytes)} are free for ${dir}`;
  if (freeBytes < leastBytes) return problem(`only ${free}: free some space`);
  if (freeBytes < fewBytes) return warning(`only ${free}: free some space before the next install`);
  // Some file systems do not limit the number of inodes.
  if (files > 0 && ffree < fewInodes)
    return warning(`only ${ffree} inodes are free for ${dir}: free some space`);
  return ok(free);
}

function freeText(freeBytes: number): string {
  const sizeMib = Math.floor(freeBytes / mib);
  return sizeMib < 10_240 ? `${sizeMib} MiB` : `${Math.floor(sizeMib / 1024)} GiB`;
}

async function statsOf(path: string): Promise<StatsFs> {
  try {
    return await statfs(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT" || dirname(path) === path) throw error;
    return statsOf(dirname(path));
  }
}
