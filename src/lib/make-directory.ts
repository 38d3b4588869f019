import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { getSystemErrorMessage } from "node:util";

/**
 * Creates a directory and its parents; existing ones stay unchanged. Node's own `recursive` never ends on a file system
 * that does not support creating directories, such as `/proc`.
 * @param mode of created directories
 * @throws Error that names the directory that could not be created, and the reason
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
    throw new Error(`the directory ${path} cannot be created: ${getSystemErrorMessage(errno)}`, {
      cause: error,
    });
  }
}

/** @returns false if the parent is missing */
async function tryToMake(path: string, mode: number): Promise<boolean> {
  try {
    await mkdir(path, { mode });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" && dirname(path) !== path) return false;
    throw error;
  }
}
