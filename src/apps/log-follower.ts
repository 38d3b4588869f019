/** A followed log goes on across stops and starts of its app: the runtime follows one run, this follows the app. */
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import type { AppRuntime, LogChunk, LogPlace, LogRecord, RunnableApp } from "../runtimes/runtime.ts";

/** A run that has just ended may show as running for a moment: without a pause this would turn in circles meanwhile. */
const resumePauseMs = 100;

/**
 * The last `tail` lines, or all from `sinceMs` on, and then each new one, until `signal` aborts or `isThere` says that the app is
 * gone. Between two runs it is the time of a line that tells what was seen already, where its runtime knows no positions.
 */
export async function* followApp(
  runtime: AppRuntime,
  app: RunnableApp,
  options: { tail: number; sinceMs?: number | undefined; signal: AbortSignal; isThere: () => boolean },
): AsyncGenerator<LogChunk> {
  const { tail, sinceMs, signal, isThere } = options;
  let seenMs = sinceMs === undefined ? -Infinity : sinceMs - 1;
  let position: number | undefined;
  let after: LogPlace | undefined = sinceMs === undefined ? undefined : { timeMs: seenMs };
  while (!signal.aborted && isThere()) {
    const begunMs = Date.now();
    const since = after;
    // Where a place is known, nothing comes twice; and what stands behind a new line is new.
    let isPast = since === undefined || since.position !== undefined;
    const isNew = ({ timeMs }: LogRecord): boolean => (isPast ||= timeMs > (since?.timeMs ?? -Infinity));
    for await (const chunk of runtime.followLogs(app, { tail, after: since, signal })) {
      const lines = chunk.lines.filter(isNew);
      seenMs = Math.max(seenMs, lines.at(-1)?.timeMs ?? -Infinity);
      position = chunk.position ?? position;
      if (lines.length > 0 || chunk.missedBytes > 0) yield { ...chunk, lines };
    }
    // Nothing seen yet: what comes from now on is new.
    if (seenMs === -Infinity) seenMs = begunMs;
    after = { timeMs: seenMs, position };
    await wait(resumePauseMs, undefined, { signal }).catch(() => undefined);
    await untilRunning(runtime, app.id, isThere, signal);
  }
}

/** Resolves when the app runs, is gone, or `signal` aborts. */
async function untilRunning(
  runtime: AppRuntime,
  id: string,
  isThere: () => boolean,
  signal: AbortSignal,
): Promise<void> {
  if (signal.aborted) return;
  const done = Promise.withResolvers<undefined>();
  const look = (): void => {
    if (runtime.status(id)?.state === "RUNNING" || !isThere()) done.resolve(undefined);
  };
  using _subscription = runtime.onChange(look);
  look();
  // A removed app announces nothing any more.
  const timer = setInterval(look, 1_000);
  try {
    await Promise.race([done.promise, once(signal, "abort")]);
  } finally {
    clearInterval(timer);
  }
}
