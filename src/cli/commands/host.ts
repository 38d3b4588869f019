/** `svc host`: the host's load on one screen, once or live. */
import { setTimeout } from "node:timers/promises";
import type { Command } from "commander";
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import { hostLines } from "../output/host-screen.ts";
import { LiveTable } from "../output/live-table.ts";
import { calls, type HostMetrics } from "../client/calls.ts";

interface HostOptions {
  readonly watch?: boolean;
}

/** Number of samples that fit in a sparkline. */
const shownSamples = 40;

/** How long to wait for the first sample, in milliseconds. */
const firstSampleMs = 5_000;
const retryMs = 250;

export function addHostCommand(parent: Command, run: RunCommand): void {
  parent
    .command("host")
    .description("show the load and free space of this machine")
    .option("-w, --watch", "update until Ctrl-C")
    .action(run((context, options: HostOptions) => showHost(context, options)));
}

async function showHost(context: CommandContext, { watch = false }: HostOptions): Promise<void> {
  if (!watch) {
    const sample = await firstSample(context);
    return context.json ? context.printJson(sample) : context.print(hostLines([sample], context.paint));
  }
  const { MonitorService, SystemMetricsSchema } = await import("../../../gen/svc/v1/monitor_pb.ts");
  const { messageToRest } = await import("../client/rest-json.ts");
  const live = new LiveTable(context.host.stdout.isTTY === true);
  const { samples } = await context.call(calls.getMetricsHistory, { limit: shownSamples });
  let seen: readonly HostMetrics[] = samples;
  for await (const message of context.follow(MonitorService.method.streamSystemMetrics, () => ({}))) {
    const sample = messageToRest<typeof SystemMetricsSchema, "camel">(SystemMetricsSchema, message);
    // The stream begins with a sample that the history may already have.
    seen = [...seen.filter(({ sampledAt }) => sampledAt !== sample.sampledAt), sample].slice(-shownSamples);
    await (context.json
      ? context.printJsonLine(sample)
      : context.print(live.next(hostLines(seen, context.paint))));
  }
}

/** A daemon that has just started has no sample for about a second; this includes the service layer in this process. */
async function firstSample(context: CommandContext): Promise<HostMetrics> {
  const deadlineMs = Date.now() + firstSampleMs;
  for (;;) {
    try {
      return await context.call(calls.getSystemMetrics, {});
    } catch (error) {
      const isEarly = error instanceof SvcError && error.reason === "not_ready";
      if (!isEarly || Date.now() >= deadlineMs) throw error;
      await setTimeout(retryMs);
    }
  }
}
