/** How an app ended, in a number and in words. */
import { constants } from "node:os";

/** @import { AppExit } from "./app-process.mjs" */

/** A shell's codes: of a program that could not be run, and that to which the number of a signal is added. */
const couldNotRun = 126;
const signalBase = 128;

/**
 * As a shell says it.
 * @param {AppExit} exit
 */
export function exitCodeOf({ code, signal }) {
  if (code !== null) return code;
  return signal === null ? couldNotRun : signalBase + constants.signals[signal];
}

/** @param {AppExit} exit */
export function describeExit({ code, signal, error }) {
  if (error !== undefined) return error;
  return signal === null ? `it exited with code ${code}` : `it was ended by ${signal}`;
}
