/** `svc docker stats`: resource usage of running containers, once or live. */
import type { Command } from "commander";
import { LostConnection } from "../../logs/outage.ts";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { containerStatsColumns } from "../../output/docker-table.ts";
import { LiveTable } from "../../output/live-table.ts";
import { calls } from "../../client/calls.ts";

/** Milliseconds between two samples. Each sample takes half a second. */
const pauseMs = 500;

export function addStatsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("stats")
    .description("show CPU, memory, network and disk usage of running containers")
    .argument("[container...]", "only these containers: names, IDs or ID prefixes")
    .option("-w, --watch", "update until Ctrl-C")
    .action(
      run((context, ids: string[], { watch = false }: { watch?: boolean }) =>
        watch ? watchStats(context, ids) : showStats(context, ids),
      ),
    );
}

async function showStats(context: CommandContext, ids: readonly string[]): Promise<void> {
  const answer = await context.call(calls.listContainerStats, { ids });
  if (context.json) return context.printJson(answer);
  const none = ids.length > 0 ? "No such container runs" : "No container runs";
  // Without cgroup controllers the kernel counts nothing.
  return context.printTable(
    containerStatsColumns,
    answer.stats,
    `${none}, or this host does not measure containers.`,
  );
}

async function watchStats(context: CommandContext, ids: readonly string[]): Promise<void> {
  const live = new LiveTable(context.host.stdout.isTTY === true);
  const outage = new LostConnection(context);
  for (let isFirst = true; ; isFirst = false) {
    const readUsage = () => context.call(calls.listContainerStats, { ids });
    const answer = await (isFirst ? readUsage() : outage.retry(readUsage));
    await (context.json
      ? context.printJsonLine(answer)
      : context.print(live.next(context.table(containerStatsColumns, answer.stats))));
    await context.pause(pauseMs);
  }
}
