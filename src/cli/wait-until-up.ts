/** Waits until an app is up, for `start`, `restart` and `install --start`. */
import { setTimeout as sleep } from "node:timers/promises";
import type { CommandContext } from "./context.ts";
import { followProgress, progressLine } from "./output/follow-progress.ts";
import type { ProgressLine } from "./output/progress.ts";
import { calls, type App } from "./client/calls.ts";

export interface WaitOptions {
  /** False: do not wait for the health check. Default: true. */
  readonly wait?: boolean;
}

export const waitOption = [
  "--wait",
  "wait until the health check passes, if there is one (default)",
] as const;
export const noWaitOption = ["--no-wait", "do not wait for the health check"] as const;

/** Milliseconds between reads of what a start waits for; the daemon updates it as often. */
const readEveryMs = 1_000;

/** Starts an app, shows what the start waits for, and then waits as {@link waitUntilUp} does. */
export async function startAndWait(
  context: CommandContext,
  id: string,
  call: typeof calls.startApp | typeof calls.restartApp,
  options: WaitOptions,
): Promise<App> {
  return waitUntilUp(context, await start(context, id, call), options);
}

async function start(
  context: CommandContext,
  id: string,
  call: typeof calls.startApp | typeof calls.restartApp,
): Promise<App> {
  const started = context.call(call, { id });
  if (context.json) return started;
  using line = progressLine(context, `start ${id}`);
  const ended = new AbortController();
  // A failure of the start is reported by its own call.
  void showAwaited(context, id, line, ended.signal).catch(() => undefined);
  return await started.finally(() => ended.abort());
}

/** Shows what a start waits for, such as a service of a compose project, until the signal aborts. */
async function showAwaited(
  context: CommandContext,
  id: string,
  line: ProgressLine,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    await sleep(readEveryMs, undefined, { signal });
    const app = await context.call(calls.getApp, { id }).catch(() => undefined);
    if (!signal.aborted && app?.waits_for !== undefined)
      line.update({ step: "wait", message: `Waiting for ${app.waits_for}` });
  }
}

/**
 * Waits until an app that was just started is up, unless `wait` is false or its health check has already
 * passed.
 * @throws SvcError `start_failed` if it does not stay up
 */
async function waitUntilUp(context: CommandContext, app: App, { wait = true }: WaitOptions): Promise<App> {
  if (!wait || app.health === "none" || app.health === "healthy") return app;
  const { AppService } = await import("../../gen/svc/v1/app_pb.ts");
  const { follow } = await import("./logs/follow.ts");
  // Continues even if nothing reads the output any more: the exit code also reports the result.
  const [method, request] = [AppService.method.awaitAppStream, { id: app.id }];
  const events = follow(context, method, () => request);
  return followProgress(context, `start ${app.id}`, method, request, events);
}
