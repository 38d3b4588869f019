/** `svc top`: processes of apps, or of the whole host, busiest first. */
import { Option, type Command } from "commander";
import { LostConnection } from "../logs/outage.ts";
import type { CommandContext } from "../context.ts";
import { parseCount } from "../input/option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { LiveTable } from "../output/live-table.ts";
import type { Column } from "../output/table.ts";
import { formatBytes, formatDuration, formatPercent } from "../output/units.ts";
import { calls, type HostProcess } from "../client/calls.ts";

interface TopOptions {
  readonly all?: boolean;
  readonly sort: "cpu" | "memory" | "start" | "pid";
  readonly limit: number;
  readonly watch?: boolean;
  readonly kernelThreads?: boolean;
}

const watchMs = 2_000;

export function addTopCommand(parent: Command, run: RunCommand): void {
  parent
    .command("top")
    .description("show the processes of apps and containers, busiest first")
    .option("-a, --all", "all processes of the host")
    .option("-k, --kernel-threads", "kernel threads too (with --all)")
    .addOption(
      new Option("-s, --sort <by>", "sort by this column")
        .choices(["cpu", "memory", "start", "pid"])
        .default("cpu"),
    )
    .option("-n, --limit <count>", "show at most N processes, 1 to 10000", parseCount(1, 10_000), 20)
    .option("-w, --watch", "update until Ctrl-C")
    .action(run((context, options: TopOptions) => top(context, options)));
}

async function top(context: CommandContext, options: TopOptions): Promise<void> {
  const live = new LiveTable(context.host.stdout.isTTY === true);
  const outage = new LostConnection(context);
  for (let isFirst = true; ; isFirst = false) {
    const readUsage = () => busiest(context, options);
    const shown = await (isFirst ? readUsage() : outage.retry(readUsage));
    if (options.watch !== true) {
      if (context.json) return context.printJson(shown);
      const none = "No process of an app or a container runs; see all with: svc top --all";
      return context.printTable(columns(context), shown.processes, none);
    }
    const text = context.table(columns(context), shown.processes);
    await (context.json ? context.printJsonLine(shown) : context.print(live.next(text)));
    await context.pause(watchMs);
  }
}

async function busiest(context: CommandContext, { all, sort, limit, kernelThreads = false }: TopOptions) {
  if (all === true) return context.call(calls.listProcesses, { sort, limit, kernelThreads });
  const { processes } = await context.call(calls.listProcesses, { sort });
  const owned = processes.filter(({ appId, container }) => appId !== undefined || container !== undefined);
  return { processes: owned.slice(0, limit), total: owned.length };
}

function columns(context: CommandContext): Column<HostProcess>[] {
  return [
    { title: "PID", value: ({ pid }) => String(pid), align: "right" },
    { title: "USER", value: ({ user }) => user, shrinkTo: 8, dispensable: 1 },
    { title: "APP", value: ({ appId, container }) => appId ?? container ?? "", shrinkTo: 8, dispensable: 2 },
    { title: "CPU", value: ({ cpuPercent }) => formatPercent(cpuPercent), align: "right" },
    { title: "MEMORY", value: ({ rssBytes }) => formatBytes(rssBytes), align: "right" },
    { title: "S", value: ({ state }) => state, dispensable: 4 },
    {
      title: "RUNS FOR",
      dispensable: 3,
      value: ({ startedAt }) => formatDuration(context.host.now() - Date.parse(startedAt ?? "")),
      align: "right",
    },
    { title: "COMMAND", value: ({ command, name }) => command || `[${name}]`, shrinkTo: 16 },
  ];
}
