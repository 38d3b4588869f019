import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { systemDirs } from "../../src/run-as/launch.ts";

/**
 * The PATH of the tests' daemons: first a docker-compose that the runner prefers, such as the one built in long CI
 * runs, and then the directories that a daemon of root searches.
 */
export const searchPath: readonly string[] = [...composeDirs(), ...systemDirs];

function composeDirs(): string[] {
  const dir = (process.env["PATH"] ?? "").split(delimiter).find(hasCompose);
  return dir === undefined || systemDirs.includes(dir) ? [] : [dir];
}

/** Whether the standalone docker-compose is installed. */
export function hasCompose(dir: string): boolean {
  try {
    accessSync(join(dir, "docker-compose"), constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
