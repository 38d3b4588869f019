/** From what an action came to, to what is recorded of its run. */
import { SvcError } from "../../errors.ts";
import type { ActionResult } from "../actions/action.ts";
import { capText, type CappedText } from "./capped-output.ts";
import type { RunOutcome } from "./run.ts";

/** Why a run was ended from outside: its status, and the sentence for its record. */
export interface RunStop {
  readonly status: "TIMED_OUT" | "CANCELED";
  readonly error: string;
  /** See `RunOutcome`. */
  readonly isCutShort?: boolean;
}

export const runStops = {
  timedOut: (timeoutSecs: number): RunStop => ({
    status: "TIMED_OUT",
    error: `it took longer than its timeout of ${timeoutSecs} s`,
  }),
  canceled: { status: "CANCELED", error: "it was canceled" },
  removed: { status: "CANCELED", error: "it was canceled: its job was removed" },
  stopping: { status: "CANCELED", error: "it was canceled: the daemon stopped", isCutShort: true },
} as const;

/** What is thrown through an action that is ended from outside. */
export class RunStopped extends Error {
  readonly stop: RunStop;

  constructor(stop: RunStop) {
    super(stop.error);
    this.name = "RunStopped";
    this.stop = stop;
  }
}

/** Why `signal` was aborted; undefined when it was not. */
export function stopOf(signal: AbortSignal): RunStop | undefined {
  return signal.aborted && signal.reason instanceof RunStopped ? signal.reason.stop : undefined;
}

/** How an action ended: with its result, or with what it threw. */
export type ActionEnd = { readonly result: ActionResult } | { readonly thrown: unknown };

export function outcomeOf(end: ActionEnd, output: CappedText, stop: RunStop | undefined): RunOutcome {
  const result = "result" in end ? end.result : {};
  const { exitCode, httpStatus, isTruncated = false } = result;
  const error = capText("thrown" in end ? sentenceOf(end.thrown) : (result.error ?? ""));
  const isFailed = error.text !== "";
  // An action that came to its end in spite of the stop did what it was to do.
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

/** What people are told of an error; the daemon's log has the rest. */
export function sentenceOf(error: unknown): string {
  return error instanceof SvcError || error instanceof RunStopped
    ? error.message
    : "it failed by a defect of svc, which the daemon's log tells more about";
}
