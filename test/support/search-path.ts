import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { systemDirs } from "../../src/identity/launch.ts";

/**
 * Where the daemons of tests look for programs: a docker-compose that the runner's PATH has first, such as the one that long CI
 * runs build, and then where a daemon of root's looks by itself.
 */
export const searchPath: readonly string[] = [...composeDirs(), ...systemDirs];

function composeDirs(): string[] {
  const dir = (process.env["PATH"] ?? "").split(delimiter).find(hasCompose);
  return dir === undefined || systemDirs.includes(dir) ? [] : [dir];
}

/** Whether the one that is no plugin of the engine's is there. */
export function hasCompose(dir: string): boolean {
  try {
    accessSync(join(dir, "docker-compose"), constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
