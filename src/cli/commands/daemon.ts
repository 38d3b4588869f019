/** `svc daemon`: runs the daemon in the foreground. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand, RunDaemon } from "../run-command.ts";
import { calls } from "../client/calls.ts";

export function addDaemonCommand(parent: Command, run: RunCommand, runDaemon: RunDaemon): void {
  const daemon = parent
    .command("daemon")
    .description("run the daemon in the foreground, until SIGTERM or Ctrl-C")
    .option("--config <file>", "configuration file (default: /etc/svc/svc.toml, or the user's own)")
    .option("--check", "only check the configuration")
    .action(
      run(async (context, { config, check = false }: { config?: string; check?: boolean }) => {
        await runDaemon({ configFile: config, checkOnly: check, stop: context.host.interrupted });
        if (check) await context.print("the configuration is valid\n");
      }),
    );
  daemon
    .command("reload")
    .description("reload the daemon's configuration, and show what needs a restart")
    .action(run(reload));
}

async function reload(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.reloadConfig, {});
  if (context.json) return context.printJson(answer);
  const { applied, needs_restart: waiting } = answer;
  if (applied.length > 0) await context.printLine(`Applied: ${applied.join(", ")}`);
  if (waiting.length > 0) await context.printLine(`Needs a restart of the daemon: ${waiting.join(", ")}`);
  if (applied.length + waiting.length === 0) context.note("Nothing has changed.");
}
