/** `svc docker stats`: what running containers use, once or live. */
import { setTimeout as wait } from "node:timers/promises";
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../program.ts";
import { containerStatsColumns } from "../../render/docker-table.ts";
import { renderTable } from "../../render/table.ts";
import { calls } from "../../transport/calls.ts";
import type { ContainerStats } from "../../transport/calls.ts";

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
  if (answer.stats.length === 0) context.note("No such container runs.");
  else await context.print(statsTable(context, answer.stats));
}

async function watchStats(context: CommandContext, ids: readonly string[]): Promise<void> {
  const redraw = context.host.stdout.isTTY === true;
  let shownLines = 0;
  for (;;) {
    const answer = await context.call(calls.listContainerStats, { ids });
    if (context.json) await context.printJsonLine(answer);
    else {
      const table = statsTable(context, answer.stats);
      // Up to where the last table began, and everything below away.
      const back = redraw && shownLines > 0 ? `\x1b[${shownLines}A\x1b[J` : "";
      await context.print(back + table + (redraw ? "" : "\n"));
      shownLines = table.split("\n").length - 1;
    }
    await wait(pauseMs, undefined, { signal: context.host.interrupted }).catch(() => undefined);
    context.throwIfInterrupted();
  }
}

function statsTable(context: CommandContext, stats: readonly ContainerStats[]): string {
  return renderTable(containerStatsColumns, stats, context.tableStyle);
}
