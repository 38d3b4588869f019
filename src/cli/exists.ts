import { stat } from "node:fs";
import { promisify } from "node:util";

/** Anything at all at the path counts: a socket that this user may not even look at is still no reason to work beside it. */
export async function exists(path: string): Promise<boolean> {
  try {
    await promisify(stat)(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code !== "ENOENT" && code !== "ENOTDIR";
  }
}
