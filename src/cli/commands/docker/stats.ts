/** `svc docker stats`: what running containers use, once or live. */
import type { Command } from "commander";
import { Away } from "../../away.ts";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { containerStatsColumns } from "../../render/docker-table.ts";
import { LiveTable } from "../../render/live-table.ts";
import { calls } from "../../transport/calls.ts";

/** Between two samples, each of which takes half a second. */
const pauseMs = 500;

export function addStatsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("stats")
    .description("show processor, memory, network and disk use of running containers")
    .argument("[container...]", "only these: names, ids or beginnings of ids")
    .option("-w, --watch", "go on until Ctrl-C")
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
  // A kernel without the controllers of cgroups counts nothing.
  return context.printTable(containerStatsColumns, answer.stats, `${none}, or its use is not counted here.`);
}

async function watchStats(context: CommandContext, ids: readonly string[]): Promise<void> {
  const live = new LiveTable(context.host.stdout.isTTY === true);
  const away = new Away(context);
  for (let isFirst = true; ; isFirst = false) {
    const look = () => context.call(calls.listContainerStats, { ids });
    const answer = await (isFirst ? look() : away.through(look));
    await (context.json
      ? context.printJsonLine(answer)
      : context.print(live.next(context.table(containerStatsColumns, answer.stats))));
    await context.pause(pauseMs);
  }
}
