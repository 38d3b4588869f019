/** The end of an app's log, and new lines when following. */
import type { CommandContext } from "../context.ts";
import { showLogs, type LogsOptions } from "./logs.ts";
import { calls } from "../client/calls.ts";

export function showAppLogs(context: CommandContext, id: string, options: LogsOptions): Promise<void> {
  return showLogs(context, options, {
    read: (asked) => context.call(calls.getAppLogs, { id, ...asked }),
    follow: async function* (request) {
      const { AppLogsSchema, AppService } = await import("../../../gen/svc/v1/app_pb.ts");
      const { messageToRest } = await import("../client/rest-json.ts");
      const method = AppService.method.streamAppLogs;
      for await (const message of context.follow(method, () => ({ id, ...request() })))
        yield messageToRest(AppLogsSchema, message);
    },
  });
}
