import { SvcError } from "../errors.ts";
import type { RuntimeStatus } from "./runtime-status.ts";

/** How a process of an app ended; unknown values are absent. */
export interface AppEnd {
  readonly exitCode?: number | undefined;
  readonly signal?: string | undefined;
  /** The app's last lines of output. */
  readonly lastLines?: readonly string[] | undefined;
  /** The port that another process uses, which prevented the start. */
  readonly takenPort?: number | undefined;
}

/** @param why without a full stop */
export function startFailed(appId: string, why: string, end: AppEnd = {}): SvcError<"start_failed"> {
  const { exitCode, signal = "", lastLines = [], takenPort } = end;
  return new SvcError("start_failed", `${beginning(appId)}${why}`, {
    payload: {
      ...(exitCode !== undefined && { exitCode }),
      ...{ signal, lastLines: [...lastLines] },
      ...(takenPort !== undefined && { takenPort }),
    },
  });
}

/** Why the app did not start, for contexts that already name the app. */
export function explainFailedStart(appId: string, { message }: SvcError): string {
  return message.startsWith(beginning(appId)) ? message.slice(beginning(appId).length) : message;
}

function beginning(appId: string): string {
  return `app "${appId}" did not start: `;
}

/** Converts a rejection by the engine to `start_failed`; returns other errors unchanged. */
export function rejectedStart(appId: string, error: unknown): unknown {
  if (!(error instanceof SvcError) || error.reason === "start_failed") return error;
  if (["unavailable", "resource_exhausted", "canceled"].includes(error.code)) return error;
  return startFailed(appId, error.message);
}

/**
 * Whether an app runs and is healthy or has no health check; false while that is undecided.
 * @throws SvcError `start_failed` when it has ended, was restarted or is unhealthy
 */
export function hasStarted(appId: string, status: RuntimeStatus): boolean {
  const { state, reason, health, healthReason, restarts, lastLines, exitCode } = status;
  const isUnhealthy = health === "unhealthy";
  if (state === "UNKNOWN") return false;
  if (state === "RUNNING" && restarts === 0 && !isUnhealthy) return health !== "starting";
  const check = `the health check fails${healthReason === undefined ? "" : `: ${healthReason}`}`;
  throw startFailed(appId, reason || (isUnhealthy ? check : "the app stopped by itself"), {
    exitCode,
    lastLines,
  });
}
