/** The end of an app's log, and what comes after it. */
import type { CommandContext } from "./context.ts";
import { printLogs, type LogsOptions } from "./logs.ts";
import { SeenLines, type FollowedLog } from "./seen-lines.ts";
import { calls } from "./transport/calls.ts";

export async function showAppLogs(context: CommandContext, id: string, options: LogsOptions): Promise<void> {
  const { tail, since, timestamps = false, follow = false } = options;
  const sinceMs = since?.(context.host.now());
  if (follow) return followLogs(context, { id, tail, sinceMs, timestamps });
  const logs = await context.call(calls.getAppLogs, {
    ...{ id, tail, timestamps },
    ...(sinceMs !== undefined && { since: new Date(sinceMs).toISOString() }),
  });
  return context.json ? context.printJson(logs) : printLogs(context, logs);
}

async function followLogs(
  context: CommandContext,
  { id, ...log }: { id: string } & FollowedLog,
): Promise<void> {
  const { AppLogsSchema, AppService } = await import("../../gen/svc/v1/app_pb.ts");
  const { messageToRest } = await import("./transport/rest-json.ts");
  const seen = new SeenLines(context, log);
  const messages = context.follow(AppService.method.streamAppLogs, () => ({ id, ...seen.request() }));
  for await (const message of messages) {
    const logs = seen.news(messageToRest(AppLogsSchema, message));
    if (logs === undefined) continue;
    await (context.json ? context.printJsonLine(logs) : printLogs(context, logs));
  }
}
