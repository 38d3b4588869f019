/** `svc kill`: sends signals to processes of the host. */
import { Option, type Command } from "commander";
import { SignalProcessRequestSignals } from "../../../gen/svc/v1/values.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { forEachName } from "../for-each.ts";
import type { RunCommand } from "../run-command.ts";
import { parseCount } from "../input/option-values.ts";
import { calls } from "../client/calls.ts";

const maxPid = 4_194_304;

interface KillOptions {
  readonly signal: string;
  readonly startTicks?: number;
}

export function addKillCommand(parent: Command, run: RunCommand): void {
  parent
    .command("kill")
    .description("send a signal to processes of this machine; needs root")
    .argument("<pid...>", "the processes")
    .addOption(
      new Option("-s, --signal <name>", "signal to send")
        .choices(SignalProcessRequestSignals)
        .default("term"),
    )
    .option(
      "--start-ticks <ticks>",
      "only if the process started at this time: startTicks in svc top --json",
      parseCount(0, Number.MAX_SAFE_INTEGER),
    )
    .action(run((context, pids: string[], options: KillOptions) => kill(context, pids, options)));
}

/** @throws UsageError unless it is a process ID */
function pidOf(text: string): string {
  const pid = Number(text);
  if (/^\d+$/.test(text) && pid >= 1 && pid <= maxPid) return String(pid);
  throw new UsageError(
    `"${text}" is not a process ID: use a number from 1 to ${maxPid}, as shown by svc top; to stop an app: svc stop ID`,
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
