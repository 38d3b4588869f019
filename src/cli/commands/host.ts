/** `svc host`: the machine on one screen, once or live. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import { hostLines } from "../render/host-screen.ts";
import { LiveTable } from "../render/live-table.ts";
import { calls, type HostMetrics } from "../transport/calls.ts";

interface HostOptions {
  readonly watch?: boolean;
}

/** As many as the sparklines have room for. */
const shownSamples = 40;

export function addHostCommand(parent: Command, run: RunCommand): void {
  parent
    .command("host")
    .description("show how busy and how full this machine is")
    .option("-w, --watch", "go on until Ctrl-C")
    .action(run((context, options: HostOptions) => showHost(context, options)));
}

async function showHost(context: CommandContext, { watch = false }: HostOptions): Promise<void> {
  if (!watch) {
    const sample = await context.call(calls.getSystemMetrics, {});
    return context.json ? context.printJson(sample) : context.print(hostLines([sample], context.paint));
  }
  const { MonitorService, SystemMetricsSchema } = await import("../../../gen/svc/v1/monitor_pb.ts");
  const { messageToRest } = await import("../transport/rest-json.ts");
  const live = new LiveTable(context.host.stdout.isTTY === true);
  const { samples } = await context.call(calls.getMetricsHistory, { limit: shownSamples });
  let seen: readonly HostMetrics[] = samples;
  for await (const message of context.follow(MonitorService.method.streamSystemMetrics, () => ({}))) {
    const sample = messageToRest<typeof SystemMetricsSchema, "camel">(SystemMetricsSchema, message);
    // The stream begins with one that the history may have.
    seen = [...seen.filter(({ sampledAt }) => sampledAt !== sample.sampledAt), sample].slice(-shownSamples);
    await (context.json
      ? context.printJsonLine(sample)
      : context.print(live.next(hostLines(seen, context.paint))));
  }
}
