/** Converts the result of an action to the recorded outcome. */
import { messageForUsers } from "../../errors.ts";
import type { ActionResult } from "../actions/action.ts";
import { capText, type CappedText } from "./capped-output.ts";
import type { RunOutcome } from "./run.ts";

/** Why a run was stopped: its status and its error message. */
export interface RunStop {
  readonly status: "TIMED_OUT" | "CANCELED";
  readonly error: string;
  /** See `RunOutcome`. */
  readonly isCutShort?: boolean;
}

export const runStops = {
  timedOut: (timeoutSecs: number): RunStop => ({
    status: "TIMED_OUT",
    error: `the run took longer than its timeout of ${timeoutSecs} s`,
  }),
  canceled: { status: "CANCELED", error: "the run was canceled" },
  removed: { status: "CANCELED", error: "the run was canceled: its job was removed" },
  stopping: { status: "CANCELED", error: "the run was canceled: the daemon stopped", isCutShort: true },
} as const;

/** The abort reason of a stopped action. */
export class RunStopped extends Error {
  readonly stop: RunStop;

  constructor(stop: RunStop) {
    super(stop.error);
    this.name = "RunStopped";
    this.stop = stop;
  }
}

/** Why `signal` was aborted; undefined if it was not. */
export function stopOf(signal: AbortSignal): RunStop | undefined {
  return signal.aborted && signal.reason instanceof RunStopped ? signal.reason.stop : undefined;
}

/** The end of an action: its result, or the thrown error. */
export type ActionEnd = { readonly result: ActionResult } | { readonly thrown: unknown };

export function outcomeOf(end: ActionEnd, output: CappedText, stop: RunStop | undefined): RunOutcome {
  const result = "result" in end ? end.result : {};
  const { exitCode, httpStatus, isTruncated = false } = result;
  const error = capText("thrown" in end ? sentenceOf(end.thrown) : (result.error ?? ""));
  const isFailed = error.text !== "";
  // An action that finished despite the stop counts as finished.
  const ended: Pick<RunOutcome, "status" | "error" | "isCutShort"> =
    stop !== undefined && isFailed ? stop : { status: isFailed ? "FAILED" : "SUCCEEDED", error: error.text };
  return {
    status: ended.status,
    ...(exitCode !== undefined && { exitCode }),
    ...(httpStatus !== undefined && { httpStatus }),
    output: output.text,
    error: ended.error,
    truncated: output.isTruncated || error.isTruncated || isTruncated,
    ...(ended.isCutShort === true && { isCutShort: true }),
  };
}

/** The error message for users; details are in the daemon's log. */
function sentenceOf(error: unknown): string {
  return error instanceof RunStopped ? error.message : messageForUsers(error);
}
