import { statSync } from "node:fs";

/**
 * Anything at all at the path counts: a socket that this user may not even look at is still no reason to work beside it.
 * Asked without a promise: the threads that Node starts for one take longer than the file system.
 */
export function exists(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ENOTDIR";
  }
}
