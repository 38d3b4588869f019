/** Waits until an app is up, for `start`, `restart` and `install --start`. */
import type { CommandContext } from "./context.ts";
import { followProgress } from "./output/follow-progress.ts";
import type { App } from "./client/calls.ts";

export interface WaitOptions {
  /** False: do not wait for the health check. Default: true. */
  readonly wait?: boolean;
}

export const waitOption = [
  "--wait",
  "wait until the health check passes, if there is one (default)",
] as const;
export const noWaitOption = ["--no-wait", "do not wait for the health check"] as const;

/**
 * Waits until an app that was just started is up, unless `wait` is false or its health check has already
 * passed.
 * @throws SvcError `start_failed` if it does not stay up
 */
export async function waitUntilUp(
  context: CommandContext,
  app: App,
  { wait = true }: WaitOptions,
): Promise<App> {
  if (!wait || app.health === "none" || app.health === "healthy") return app;
  const { AppService } = await import("../../gen/svc/v1/app_pb.ts");
  const { follow } = await import("./logs/follow.ts");
  // Continues even if nothing reads the output any more: the exit code also reports the result.
  const [method, request] = [AppService.method.awaitAppStream, { id: app.id }];
  const events = follow(context, method, () => request);
  return followProgress(context, `start ${app.id}`, method, request, events);
}
