/**
 * Explains to the app's owner why a program could not be run. One errno may concern program, interpreter or working
 * directory (execve(2), chdir(2)), so each is checked.
 */
import { accessSync, constants } from "node:fs";
import { resolve } from "node:path";

/**
 * @param {NodeJS.ErrnoException} error as `spawn` reports it
 * @param {string} program
 * @param {string} cwd absolute
 * @returns {string} without a full stop
 */
export function describeSpawnFailure(error, program, cwd) {
  const cannot = `program "${program}" cannot be run`;
  if (!isAccessible(cwd, constants.X_OK))
    return `${cannot}: its working directory "${cwd}" cannot be entered`;
  const isPath = program.includes("/");
  const isThere = isPath && isAccessible(resolve(cwd, program), constants.F_OK);
  switch (error.code) {
    case "ENOENT":
      if (isThere) return `${cannot}: the interpreter that it names was not found`;
      return `program "${program}" was not found${isPath ? "" : " in PATH"}`;
    case "EACCES":
      return `program "${program}" is not executable`;
    default:
      return `${cannot}: ${error.message}`;
  }
}

/**
 * Checks for a missing program in advance, because the launchers in front of it would report it in their own words,
 * in the app's log.
 * @param {{ argv: readonly string[], cwd: string, env: Readonly<Record<string, string>> }} launch
 * @returns {string | undefined} as {@link describeSpawnFailure}; undefined if no problem was found
 */
export function missingProgram({ argv: [program = ""], cwd, env }) {
  const path = program.includes("/") ? "." : env["PATH"];
  // Without PATH, the C library decides where to search.
  if (path === undefined) return undefined;
  const dirs = path.split(":").map((dir) => resolve(cwd, dir));
  const isThere = dirs.some((dir) => isAccessible(resolve(dir, program), constants.F_OK));
  return isThere ? undefined : describeSpawnFailure(noEntry, program, cwd);
}

const noEntry = Object.assign(new Error("no such file"), { code: "ENOENT" });

/**
 * @param {string} path
 * @param {number} mode
 */
function isAccessible(path, mode) {
  try {
    accessSync(path, mode);
    return true;
  } catch {
    return false;
  }
}
