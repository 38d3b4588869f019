/**
 * Disk space reserved so that a full disk can still be cleaned up: a file of allocated blocks that is deleted when an
 * essential write (a stop, a removal, a state) finds the disk full, and created again when there is space.
 */
import { randomFillSync } from "node:crypto";
import {
  closeSync,
  fsyncSync,
  openSync,
  renameSync,
  rmSync,
  statfsSync,
  writeSync,
  existsSync,
} from "node:fs";
import { createOwnerOnly, type StoreFiles, temporaryPath } from "./store-files.ts";

/** Enough for several thousand small writes: a page or two of write-ahead log each, with checkpoints in between. */
export const reserveBytes = 8 * 1024 * 1024;

/** The log is folded before the reserve's space is used, so the space may be complete although it is in use. */
const unusedBytes = 1024 * 1024;

/** Must stay free in addition to the reserve, so that creating it does not fill the disk. */
const marginBytes = 8 * 1024 * 1024;

/** Creates the reserve unless it exists or the disk lacks space for it; blocks on the disk. */
export function makeReserve(files: StoreFiles): void {
  if (!isReserveMissing(files) || freeBytes(files.dir) < reserveBytes + marginBytes) return;
  const temporary = temporaryPath(files);
  createOwnerOnly(temporary);
  try {
    const fd = openSync(temporary, "r+");
    try {
      // Random bytes, because a compressing file system would store zeros without using space.
      const chunk = new Uint8Array(1024 * 1024);
      for (let written = 0; written < reserveBytes; written += chunk.length)
        writeSync(fd, randomFillSync(chunk));
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, files.reserve);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}

/** Whether the reserve was deleted or never created. */
export function isReserveMissing(files: StoreFiles): boolean {
  return !existsSync(files.reserve);
}

/** Frees the reserved space. */
export function releaseReserve(files: StoreFiles): void {
  rmSync(files.reserve, { force: true });
}

/** Whether the free space is what the reserve was for, and may be used only for essential writes. */
export function isReserveInUse(files: StoreFiles): boolean {
  return isReserveMissing(files) && freeBytes(files.dir) < reserveBytes + unusedBytes;
}

/** Bytes that this user may still write to the file system of `dir`. */
function freeBytes(dir: string): number {
  const { bavail, bfree, bsize } = statfsSync(dir);
  return (process.geteuid?.() === 0 ? bfree : bavail) * bsize;
}
