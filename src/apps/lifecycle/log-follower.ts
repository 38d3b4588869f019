/** Follows a log across stops and starts of its app; a runtime follows only one run. */
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import type { AppRuntime, FollowLogOptions } from "../../runtimes/contract.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import { newParts, type LogPart } from "../../logs/log-chunk.ts";
import { NewLines } from "../../logs/log-position.ts";

/** Pause after a run, which may show as running for a moment; prevents a busy loop. */
const resumePauseMs = 100;

/**
 * The last `tail` lines, or all after a position, and then each new one, until `signal` aborts or `isInstalled` returns false for a
 * removed app.
 */
export async function* followApp(
  runtime: AppRuntime,
  app: RunnableApp,
  options: FollowLogOptions & { isInstalled: () => boolean },
): AsyncGenerator<LogPart> {
  const { tail, service, after, signal, isInstalled } = options;
  let from = after;
  while (!signal.aborted && isInstalled()) {
    const log = new NewLines(from);
    yield* newParts(runtime.followLogs(app, { tail, service, after: from, signal }), log);
    from = log.position;
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
