/** A directory in memory for tests that create and remove thousands of files. */
import { readFileSync, statfsSync } from "node:fs";
import { release } from "node:os";

const place = "/dev/shm";
/** Free memory far above the needs of any of them. */
const neededBytes = 2 ** 30;

/**
 * Moves all files that a test file and its programs create below `tmpdir()` into memory. For tests that are not about
 * the disk: file systems on disks take four times as long to create and to remove files. Without such a directory, or
 * if `TMPDIR` is set, nothing changes. @returns whether it is in memory: a test of a second file system then needs a
 * disk
 */
export function keepInMemory(): boolean {
  const isKept = process.env["TMPDIR"] === undefined && isFit();
  if (isKept) process.env["TMPDIR"] = place;
  return isKept;
}

/** Programs must be executable there, and in containers it is often small. */
function isFit(): boolean {
  const mounts = readFileSync("/proc/mounts", "utf8").split("\n");
  const [, , type, options = ""] =
    mounts.map((line) => line.split(" ")).findLast(([, path]) => path === place) ?? [];
  if (type !== "tmpfs" || options.split(",").some((option) => ["noexec", "ro"].includes(option)))
    return false;
  // Before Linux 6.6 it supports no user attributes.
  const [major = 0, minor = 0] = release().split(".").map(Number);
  if (major < 6 || (major === 6 && minor < 6)) return false;
  const { bavail, bsize } = statfsSync(place);
  return bavail * bsize >= neededBytes && hasMemory(neededBytes);
}

/** A file system in memory accepts more than is free, and the next process that needs memory fails. */
export function hasMemory(bytes: number, availableBytes: number = process.availableMemory()): boolean {
  return availableBytes >= bytes;
}
