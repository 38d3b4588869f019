/** What lies in a run directory, the working directory here, as its readers take it. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";

/** @import { SupervisorSpec } from "./supervisor-types.ts" */

/** Of `spec.json` and `state.json`, as the sweep takes them. */
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
 * @returns {unknown} `undefined` when it is missing, damaged or no regular file: a FIFO would hold up a stop for ever
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
