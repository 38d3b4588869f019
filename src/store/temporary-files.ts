import { randomBytes } from "node:crypto";
import { lstatSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { temporaryPrefix, type StoreFiles } from "./store-files.ts";

const leftoverAgeMs = 3_600_000;

/** A unique name in the store's directory, for a file that is renamed into place when it is complete. */
export function temporaryPath(files: StoreFiles): string {
  return join(files.dir, temporaryPrefix + randomBytes(8).toString("hex"));
}

/** Removes files that killed processes left behind. Files younger than an hour may still be in use. */
export function removeLeftovers(files: StoreFiles, nowMs: number): void {
  for (const name of readdirSync(files.dir)) {
    if (!name.startsWith(temporaryPrefix)) continue;
    const path = join(files.dir, name);
    const stats = lstatSync(path, { throwIfNoEntry: false });
    if (stats !== undefined && nowMs - stats.mtimeMs > leftoverAgeMs) rmSync(path, { force: true });
  }
}
