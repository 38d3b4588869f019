import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { getSystemErrorMessage } from "node:util";

/**
 * Makes a directory and those above it; one that is there stays as it is. Node's own `recursive` tries for ever where a
 * file system lets nobody make any, as `/proc` does.
 * @param mode of those that are made
 * @throws Error that says which directory could not be made, and why
 */
export async function makeDirectory(path: string, mode: number): Promise<void> {
  try {
    if (!(await tryToMake(path, mode))) {
      await makeDirectory(dirname(path), mode);
      await mkdir(path, { mode });
    }
  } catch (error) {
    const { code, errno } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") return;
    if (errno === undefined) throw error;
    throw new Error(`the directory ${path} cannot be made: ${getSystemErrorMessage(errno)}`, {
      cause: error,
    });
  }
}

/** @returns false when the one above is missing */
async function tryToMake(path: string, mode: number): Promise<boolean> {
  try {
    await mkdir(path, { mode });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" && dirname(path) !== path) return false;
    throw error;
  }
}
