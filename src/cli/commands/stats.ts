/** `svc stats`: resource usage of running apps, once or live. */
import { Option, type Command } from "commander";
import type { CommandContext } from "../context.ts";
import { ReportedError } from "../output/failure.ts";
import { parseCount } from "../input/option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { pagesOf } from "../pages.ts";
import { LiveTable } from "../output/live-table.ts";
import { formatBothWays, formatMeasured, formatPercent } from "../output/units.ts";
import { calls, type AppStats } from "../client/calls.ts";

interface StatsOptions {
  readonly watch?: boolean;
  readonly interval: number;
}

export function addStatsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("stats")
    .description("show CPU, memory, disk and network usage of running apps")
    .argument("[id...]", "only these apps")
    .option("-w, --watch", "update until Ctrl-C")
    .option("--interval <seconds>", "seconds between two samples, 1 to 3600", parseCount(1, 3600), 1)
    // Docker users type it: docker stats updates until Ctrl-C without it.
    .addOption(new Option("--no-stream", "has no effect: one sample is the default").hideHelp())
    .action(run((context, ids: string[], options: StatsOptions) => showStats(context, ids, options)));
}

async function showStats(
  context: CommandContext,
  ids: readonly string[],
  options: StatsOptions,
): Promise<void> {
  if (options.watch === true) {
    for (const id of ids) await context.call(calls.getApp, { id });
    return watchStats(context, ids, options.interval);
  }
  const answer = await context.call(calls.getAppStats, { ids });
  const sampled = new Set(answer.stats.map(({ id }) => id));
  const failures = await failuresOf(
    context,
    ids.filter((id) => !sampled.has(id)),
  );
  if (ids.length === 0 || failures.length < ids.length) {
    if (context.json) await context.printJson(answer);
    else if (answer.stats.length > 0) await context.print(statsTable(context, answer.stats));
    else context.note(await whyNone(context, ids));
  }
  const exitCodes: number[] = [];
  for (const { id, error } of failures) exitCodes.push(await context.report(error, id));
  if (exitCodes[0] !== undefined) throw new ReportedError(exitCodes[0]);
}

async function whyNone(context: CommandContext, ids: readonly string[]): Promise<string> {
  for await (const { apps } of pagesOf(context, calls.listApps, {})) {
    const runs = apps.some(({ id, state }) => state === "RUNNING" && (ids.length === 0 || ids.includes(id)));
    // Without cgroup controllers the kernel does not count for containers.
    if (runs) return "This host does not measure the running apps. To see why: svc doctor";
  }
  return ids.length === 0 ? "No app is running." : "No such app is running.";
}

/** Why apps have no sample; empty for an app that is merely stopped. */
async function failuresOf(
  context: CommandContext,
  ids: readonly string[],
): Promise<readonly { readonly id: string; readonly error: unknown }[]> {
  const failures = [];
  for (const id of ids) {
    context.throwIfInterrupted();
    try {
      await context.call(calls.getApp, { id });
    } catch (error) {
      failures.push({ id, error });
    }
  }
  return failures;
}

async function watchStats(
  context: CommandContext,
  ids: readonly string[],
  intervalSecs: number,
): Promise<void> {
  const { AppService, GetAppStatsResponseSchema } = await import("../../../gen/svc/v1/app_pb.ts");
  const { messageToRest } = await import("../client/rest-json.ts");
  const request = { ids: [...ids], minIntervalSecs: intervalSecs };
  const live = new LiveTable(context.host.stdout.isTTY === true);
  for await (const frame of context.follow(AppService.method.streamAppStats, () => request)) {
    const answer = messageToRest(GetAppStatsResponseSchema, frame);
    await (context.json
      ? context.printJsonLine(answer)
      : context.print(live.next(statsTable(context, answer.stats))));
  }
}

function statsTable(context: CommandContext, stats: readonly AppStats[]): string {
  return context.table<AppStats>(
    [
      { title: "ID", value: (app) => app.id },
      {
        title: "CPU",
        value: (app) => (app.cpu_percent === undefined ? "-" : formatPercent(app.cpu_percent)),
        align: "right",
      },
      { title: "MEMORY", value: (app) => formatMeasured(app.memory_bytes), align: "right" },
      { title: "PROCESSES", value: (app) => String(app.processes ?? "-"), align: "right" },
      {
        title: "DISK READ / WRITTEN",
        value: (app) => formatBothWays(app.disk_read_bytes, app.disk_written_bytes),
        align: "right",
      },
      {
        title: "NETWORK IN / OUT",
        value: (app) => formatBothWays(app.network_received_bytes, app.network_sent_bytes),
        align: "right",
      },
    ],
    stats,
  );
}
