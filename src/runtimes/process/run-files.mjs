/** Reads the files of a run directory, which is the working directory. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";

/** @import { SupervisorSpec } from "./supervisor-types.ts" */

/** Size limit of `spec.json` and `state.json` for the sweep. */
const maxJsonBytes = 1024 * 1024;

/** @returns {SupervisorSpec} */
export function readSpec() {
  /** @type {unknown} */
  const spec = JSON.parse(readFileSync("spec.json", "utf8"));
  const { version } = /** @type {{ version: unknown }} */ (spec);
  if (version !== 1) throw new Error(`spec.json has version ${String(version)}, not 1`);
  return /** @type {SupervisorSpec} */ (spec);
}

/**
 * @param {string} path
 * @returns {unknown} `undefined` if the file is missing, damaged or not a regular file: a FIFO would block a stop
 *   forever
 */
export function readJson(path) {
  /** @type {number | undefined} */
  let fd;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const file = fstatSync(fd);
    return file.isFile() && file.size <= maxJsonBytes ? JSON.parse(readFileSync(fd, "utf8")) : undefined;
  } catch {
    return undefined;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}
