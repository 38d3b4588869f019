/** Starts and stops apps: shows what they wait for, and waits until an app is up. */
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

/** Milliseconds between reads of what an app waits for; the daemon updates it as often. */
const readEveryMs = 1_000;

/** Starts an app, shows what the start waits for, and then waits as {@link waitUntilUp} does. */
export async function startAndWait(
  context: CommandContext,
  id: string,
  call: typeof calls.startApp | typeof calls.restartApp,
  options: WaitOptions,
): Promise<App> {
  const verb = call === calls.restartApp ? "restart" : "start";
  return waitUntilUp(context, await showingWaits(context, verb, id, call), options);
}

/** Stops an app, and shows that it is still stopping. */
export function stopAndWait(context: CommandContext, id: string): Promise<App> {
  return showingWaits(context, "stop", id, calls.stopApp);
}

/** @param verb begins the line of progress */
async function showingWaits(
  context: CommandContext,
  verb: string,
  id: string,
  call: typeof calls.startApp,
): Promise<App> {
  const called = context.call(call, { id });
  if (context.json) return called;
  using line = progressLine(context, `${verb} ${id}`);
  const ended = new AbortController();
  // A failure is reported by the call itself.
  void showAwaited(context, id, line, ended.signal).catch(() => undefined);
  return await called.finally(() => ended.abort());
}

/** Shows what an app waits for, such as a service of a compose project, until the signal aborts. */
async function showAwaited(
  context: CommandContext,
  id: string,
  line: ProgressLine,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    await sleep(readEveryMs, undefined, { signal });
    const app = await context.call(calls.getApp, { id }).catch(() => undefined);
    if (signal.aborted || app === undefined) continue;
    if (app.waits_for !== undefined) line.update({ step: "wait", message: `Waiting for ${app.waits_for}` });
    else if (app.operation?.phase === "stop") line.update({ step: "stop", message: "" });
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
