/** What `start`, `restart` and `install --start` do before they say that an app runs. */
import type { CommandContext } from "./context.ts";
import { followProgress } from "./follow-progress.ts";
import type { App } from "./transport/calls.ts";

export interface ComeUpOptions {
  /** False: whether it is healthy is nobody's concern. Default: true. */
  readonly wait?: boolean;
}

export const waitOption = [
  "--wait",
  "wait until its health check, where it has one, passes (default)",
] as const;
export const noWaitOption = ["--no-wait", "do not wait for its health check"] as const;

/**
 * Follows an app that was just started until it is up, unless nobody wants to wait, or its check has passed already.
 * @throws SvcError `start_failed` when it does not stay up
 */
export async function comeUp(
  context: CommandContext,
  app: App,
  { wait = true }: ComeUpOptions,
): Promise<App> {
  if (!wait || app.health === "none" || app.health === "healthy") return app;
  const { AppService } = await import("../../gen/svc/v1/app_pb.ts");
  const { follow } = await import("./follow.ts");
  // Whoever reads its output may have left: how it comes up is told by the exit code, too.
  const [method, request] = [AppService.method.awaitAppStream, { id: app.id }];
  const events = follow(context, method, () => request);
  return followProgress(context, `start ${app.id}`, method, request, events);
}
