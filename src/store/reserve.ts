/**
 * Room kept on the disk so that a full one can still be cleaned up: a file of really allocated blocks that is given up
 * when an essential write (a stop, a removal, a state) finds the disk full, and made again when there is room.
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
import { createOwnerOnly, type StoreFiles } from "./store-files.ts";
import { temporaryPath } from "./temporary-files.ts";

/** Some thousand small writes: a page or two of write-ahead log each, with checkpoints in between. */
export const reserveBytes = 8 * 1024 * 1024;

/** The log is folded before the reserve's room is written to, so that it may be whole though it is in use. */
const unusedBytes = 1024 * 1024;

/** What must stay free beside the reserve, so that making it does not fill the disk. */
const marginBytes = 8 * 1024 * 1024;

/** Makes the reserve unless it is there or the disk has no room for it; blocks on the disk. */
export function makeReserve(files: StoreFiles): void {
  if (!isReserveMissing(files) || freeBytes(files.dir) < reserveBytes + marginBytes) return;
  const temporary = temporaryPath(files);
  createOwnerOnly(temporary);
  try {
    const fd = openSync(temporary, "r+");
    try {
      // Random bytes: a file system that compresses would keep zeros in no room at all.
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

/** Whether it was given up, or never made. */
export function isReserveMissing(files: StoreFiles): boolean {
  return !existsSync(files.reserve);
}

/** Gives the room back to the disk. */
export function giveUpReserve(files: StoreFiles): void {
  rmSync(files.reserve, { force: true });
}

/** Whether what is free now is what the reserve was for, and thus for essential writes alone. */
export function isReserveInUse(files: StoreFiles): boolean {
  return isReserveMissing(files) && freeBytes(files.dir) < reserveBytes + unusedBytes;
}

/** What this user may still write to the file system of `dir`. */
function freeBytes(dir: string): number {
  const { bavail, bfree, bsize } = statfsSync(dir);
  return (process.geteuid?.() === 0 ? bfree : bavail) * bsize;
}
