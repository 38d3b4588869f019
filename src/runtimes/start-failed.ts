import { SvcError } from "../errors.ts";
import type { RuntimeStatus } from "./runtime.ts";

/** How what ended of an app did; what is not known is absent. */
export interface AppEnd {
  readonly exitCode?: number | undefined;
  readonly signal?: string | undefined;
  /** What it printed last. */
  readonly lastLines?: readonly string[] | undefined;
}

/** @param why without a full stop */
export function startFailed(appId: string, why: string, end: AppEnd = {}): SvcError<"start_failed"> {
  const { exitCode, signal = "", lastLines = [] } = end;
  return new SvcError("start_failed", `${beginning(appId)}${why}`, {
    payload: { ...(exitCode !== undefined && { exitCode }), signal, lastLines: [...lastLines] },
  });
}

/** Why it did not start, for where it is clear which app is meant. */
export function whyNotStarted(appId: string, { message }: SvcError): string {
  return message.startsWith(beginning(appId)) ? message.slice(beginning(appId).length) : message;
}

function beginning(appId: string): string {
  return `app "${appId}" did not start: `;
}

/** Where the engine would not, its words are why the app did not start; anything else stays what it is. */
export function refusedStart(appId: string, error: unknown): unknown {
  if (!(error instanceof SvcError) || error.reason === "start_failed") return error;
  if (["unavailable", "resource_exhausted"].includes(error.code)) return error;
  return startFailed(appId, error.message);
}

/**
 * Whether an app runs and is healthy, or has no health check; what is not known yet is waited for.
 * @throws SvcError `start_failed` when it has ended, was started again or is unhealthy
 */
export function hasComeUp(appId: string, status: RuntimeStatus): boolean {
  const { state, reason, health, healthReason, restarts, lastLines, exitCode } = status;
  const isUnhealthy = health === "unhealthy";
  if (state === "UNKNOWN") return false;
  if (state === "RUNNING" && restarts === 0 && !isUnhealthy) return health !== "starting";
  const check = `its health check fails${healthReason === undefined ? "" : `: ${healthReason}`}`;
  throw startFailed(appId, reason || (isUnhealthy ? check : "it ended"), { exitCode, lastLines });
}
