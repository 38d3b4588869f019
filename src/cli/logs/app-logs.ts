/** The end of the logs of apps, and new lines when following. */
import type { CommandContext } from "../context.ts";
import type { Color } from "../output/color.ts";
import { escapeCell } from "../output/escape.ts";
import { namedService } from "../named-service.ts";
import { UsageError } from "../output/failure.ts";
import { lineText, readLogs, showLogs, withoutTime, type LogSource, type LogsOptions } from "./logs.ts";
import { calls } from "../client/calls.ts";

/** Lines of several apps are merged by their times, and begin with the ID of their app. */
export async function showAppLogs(
  context: CommandContext,
  ids: readonly string[],
  { service = "", ...options }: AppLogsOptions,
): Promise<void> {
  const [id = ""] = ids;
  const named = service === "" ? await namedService(context, ids) : undefined;
  if (named !== undefined) return showLogs(context, options, sourceOf(context, named.app, named.service));
  if (ids.length === 1) return showLogs(context, options, sourceOf(context, id, service));
  if (service !== "") throw new UsageError("--service needs exactly one app");
  const prefixes = prefixesOf(context, ids);
  if (options.follow !== true) return showMerged(context, prefixes, options);
  // An unknown app is an error before anything is followed.
  for (const each of ids) await context.call(calls.getApp, { id: each });
  await Promise.all(
    [...prefixes].map(([each, prefix]) => showLogs(context, options, sourceOf(context, each), prefix)),
  );
}

export interface AppLogsOptions extends LogsOptions {
  /** Only lines of this service. */
  readonly service?: string;
}

function sourceOf(context: CommandContext, id: string, service = ""): LogSource {
  const app = { id, ...(service !== "" && { service }) };
  return {
    read: (query) => context.call(calls.getAppLogs, { ...app, ...query }),
    follow: async function* (request) {
      const { AppLogsSchema, AppService } = await import("../../../gen/svc/v1/app_pb.ts");
      const { messageToRest } = await import("../client/rest-json.ts");
      const method = AppService.method.streamAppLogs;
      for await (const message of context.follow(method, () => ({ ...app, ...request() })))
        yield messageToRest(AppLogsSchema, message);
    },
  };
}

async function showMerged(
  context: CommandContext,
  prefixes: ReadonlyMap<string, string>,
  options: LogsOptions,
): Promise<void> {
  const { timestamps = false } = options;
  const lines: { readonly atMs: number; readonly text: string }[] = [];
  for (const [id, prefix] of prefixes) {
    const logs = await readLogs(context, { ...options, timestamps: true }, sourceOf(context, id));
    if (context.json) {
      await context.printJsonLine({
        id,
        ...logs,
        lines: timestamps ? logs.lines : logs.lines.map(withoutTime),
      });
      continue;
    }
    let atMs = 0;
    for (const line of logs.lines) {
      if (line.time !== undefined) atMs = Date.parse(line.time);
      lines.push({ atMs, text: `${prefix}${lineText(context, timestamps ? line : withoutTime(line))}\n` });
    }
  }
  const merged = lines.toSorted((one, other) => one.atMs - other.atMs);
  await context.print(merged.map(({ text }) => text).join(""));
}

const prefixColors: readonly Color[] = ["cyan", "yellow", "green", "magenta", "blue"];

/** `hello | `, with a color per app. */
function prefixesOf({ paint }: CommandContext, ids: readonly string[]): ReadonlyMap<string, string> {
  const width = Math.max(...ids.map((id) => id.length));
  return new Map(
    [...new Set(ids)].map((id, at) => [
      id,
      paint(prefixColors[at % prefixColors.length], `${escapeCell(id).padEnd(width)} | `),
    ]),
  );
}
