import { constants } from "node:fs/promises";
import { join } from "node:path";
import { mayAccess } from "../lib/may-access.ts";

/** The absolute path of a program in the first of these directories that has it. */
export async function findProgram(name: string, dirs: readonly string[]): Promise<string | undefined> {
  for (const dir of dirs) {
    const path = join(dir, name);
    if (await mayAccess(path, constants.X_OK)) return path;
  }
  return undefined;
}
