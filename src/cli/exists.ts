import { statSync } from "node:fs";

/**
 * Counts anything at the path: even a socket that this user may not access means that a daemon is set up.
 * Synchronous, because starting Node's threads takes longer than the check.
 */
export function exists(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ENOTDIR";
  }
}
