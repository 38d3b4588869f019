import { access, constants } from "node:fs/promises";
import { join } from "node:path";

/** The absolute path of a program in the first of these directories that has it. */
export async function findProgram(name: string, dirs: readonly string[]): Promise<string | undefined> {
  for (const dir of dirs) {
    const path = join(dir, name);
    const found = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (found) return path;
  }
  return undefined;
}
