/** Follows a log across stops and starts of its app; a runtime follows only one run. */
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import type { AppRuntime } from "../../runtimes/contract.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import type { LogChunk, LogPosition, LogRecord } from "../../logs/log-chunk.ts";

/** Pause after a run, which may show as running for a moment; prevents a busy loop. */
const resumePauseMs = 100;

/**
 * The last `tail` lines, or all from `sinceMs` on, and then each new one, until `signal` aborts or `isInstalled` returns false for a
 * removed app. Between two runs, the time of the last line decides where to continue if the runtime has no positions.
 */
export async function* followApp(
  runtime: AppRuntime,
  app: RunnableApp,
  options: { tail: number; sinceMs?: number | undefined; signal: AbortSignal; isInstalled: () => boolean },
): AsyncGenerator<LogChunk> {
  const { tail, sinceMs, signal, isInstalled } = options;
  let seenMs = sinceMs === undefined ? -Infinity : sinceMs - 1;
  let position: number | undefined;
  let after: LogPosition | undefined = sinceMs === undefined ? undefined : { timeMs: seenMs };
  while (!signal.aborted && isInstalled()) {
    const begunMs = Date.now();
    const since = after;
    // With a position there are no repeated lines; all lines after a new line are new.
    let isPast = since === undefined || since.position !== undefined;
    const isNew = ({ timeMs }: LogRecord): boolean => (isPast ||= timeMs > (since?.timeMs ?? -Infinity));
    for await (const chunk of runtime.followLogs(app, { tail, after: since, signal })) {
      const lines = chunk.lines.filter(isNew);
      seenMs = Math.max(seenMs, lines.at(-1)?.timeMs ?? -Infinity);
      position = chunk.position ?? position;
      if (lines.length > 0 || chunk.missedBytes > 0) yield { ...chunk, lines };
    }
    // No line yet, so all further lines are new.
    if (seenMs === -Infinity) seenMs = begunMs;
    after = { timeMs: seenMs, position };
    await wait(resumePauseMs, undefined, { signal }).catch(() => undefined);
    await untilRunning(runtime, app.id, isInstalled, signal);
  }
}

/** Resolves when the app runs or was removed, or `signal` aborts. */
async function untilRunning(
  runtime: AppRuntime,
  id: string,
  isInstalled: () => boolean,
  signal: AbortSignal,
): Promise<void> {
  if (signal.aborted) return;
  const done = Promise.withResolvers<undefined>();
  const checkState = (): void => {
    if (runtime.status(id)?.state === "RUNNING" || !isInstalled()) done.resolve(undefined);
  };
  using _subscription = runtime.onChange(checkState);
  checkState();
  // A removed app has no further events.
  const timer = setInterval(checkState, 1_000);
  try {
    await Promise.race([done.promise, once(signal, "abort")]);
  } finally {
    clearInterval(timer);
  }
}
