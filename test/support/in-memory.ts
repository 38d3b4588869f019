/** A place in memory for the tests that make and remove thousands of files. */
import { readFileSync, statfsSync } from "node:fs";
import { release } from "node:os";

const place = "/dev/shm";
/** What none of them comes near. */
const neededBytes = 2 ** 30;

/**
 * Has all that a test file puts below `tmpdir()` from now on lie in memory, and so have the programs that it starts. For tests
 * whose subject is not the disk: the file systems of disks take four times as long to make files and to forget them. Where
 * there is no such place, or `TMPDIR` says another one, everything stays as it is.
 * @returns whether it does: what needs a second file system is then in need of a disk
 */
export function keepInMemory(): boolean {
  const isKept = process.env["TMPDIR"] === undefined && isFit();
  if (isKept) process.env["TMPDIR"] = place;
  return isKept;
}

/** Programs have to run there, and in containers there is often little of it. */
function isFit(): boolean {
  const mounts = readFileSync("/proc/mounts", "utf8").split("\n");
  const [, , type, options = ""] =
    mounts.map((line) => line.split(" ")).findLast(([, path]) => path === place) ?? [];
  if (type !== "tmpfs" || options.split(",").some((option) => ["noexec", "ro"].includes(option)))
    return false;
  // Before Linux 6.6 a file there has no attributes of its owner's.
  const [major = 0, minor = 0] = release().split(".").map(Number);
  if (major < 6 || (major === 6 && minor < 6)) return false;
  const { bavail, bsize } = statfsSync(place);
  return bavail * bsize >= neededBytes && hasMemory(neededBytes);
}

/** A file system in memory takes what it is told to, and whoever asks for memory next pays for it. */
export function hasMemory(bytes: number, availableBytes: number = process.availableMemory()): boolean {
  return availableBytes >= bytes;
}
