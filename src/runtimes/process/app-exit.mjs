/** Converts the exit of an app to an exit code and a sentence. */
import { constants } from "node:os";

/** @import { AppExit } from "./app-process.mjs" */

/** A shell's exit codes: for a program that cannot be run, and the base that a signal's number is added to. */
const couldNotRun = 126;
const signalBase = 128;

/**
 * The exit code that a shell would report.
 * @param {AppExit} exit
 */
export function exitCodeOf({ code, signal }) {
  if (code !== null) return code;
  return signal === null ? couldNotRun : signalBase + constants.signals[signal];
}

/** @param {AppExit} exit */
export function describeExit({ code, signal, error }) {
  if (error !== undefined) return error;
  return signal === null ? `the program exited with code ${code}` : `the program was killed by ${signal}`;
}
