/** `svc kill`: signals to processes of the host. */
import { Option, type Command } from "commander";
import { SignalProcessRequestSignals } from "../../../gen/svc/v1/words.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../failure.ts";
import { forEachName } from "../for-each.ts";
import type { RunCommand } from "../run-command.ts";
import { parseCount } from "../option-values.ts";
import { calls } from "../transport/calls.ts";

const mostPid = 4_194_304;

interface KillOptions {
  readonly signal: string;
  readonly startTicks?: number;
}

export function addKillCommand(parent: Command, run: RunCommand): void {
  parent
    .command("kill")
    .description("send a signal to processes of this machine (root)")
    .argument("<pid...>", "the processes")
    .addOption(
      new Option("-s, --signal <name>", "which signal").choices(SignalProcessRequestSignals).default("term"),
    )
    .option(
      "--start-ticks <ticks>",
      "only if it started then: startTicks of svc top --json",
      parseCount(0, Number.MAX_SAFE_INTEGER),
    )
    .action(run((context, pids: string[], options: KillOptions) => kill(context, pids, options)));
}

/** @throws UsageError for what is none */
function pidOf(text: string): string {
  const pid = Number(text);
  if (/^\d+$/.test(text) && pid >= 1 && pid <= mostPid) return String(pid);
  throw new UsageError(
    `"${text}" is no process: it must be a number from 1 to ${mostPid}, as svc top shows it`,
  );
}

async function kill(context: CommandContext, pids: readonly string[], options: KillOptions): Promise<void> {
  const { signal, startTicks } = options;
  await forEachName(context, pids.map(pidOf), {
    call: (pid) =>
      context.call(calls.signalProcess, {
        pid: Number(pid),
        signal,
        ...(startTicks !== undefined && { expectedStartTicks: startTicks }),
      }),
    text: ({ pid }) => `Sent ${signal} to ${pid}`,
  });
}
