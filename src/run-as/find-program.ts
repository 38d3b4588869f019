import { constants } from "node:fs/promises";
import { join } from "node:path";
import { mayAccess } from "../sys/may-access.ts";

/** Returns the absolute path of a program in the first of the directories that contains it. */
export async function findProgram(name: string, dirs: readonly string[]): Promise<string | undefined> {
  for (const dir of dirs) {
    const path = join(dir, name);
    if (await mayAccess(path, constants.X_OK)) return path;
  }
  return undefined;
}
