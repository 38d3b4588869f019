import { failedPrecondition, SvcError } from "../errors.ts";

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
  return failedPrecondition("start_failed", `${beginning(appId)}${why}`, {
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
