/** `svc daemon`: the daemon itself, in the foreground. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand, RunDaemon } from "../run-command.ts";
import { calls } from "../transport/calls.ts";

export function addDaemonCommand(parent: Command, run: RunCommand, runDaemon: RunDaemon): void {
  const daemon = parent
    .command("daemon")
    .description("run the daemon in the foreground, until SIGTERM or Ctrl-C")
    .option("--config <file>", "configuration file (default: /etc/svc/svc.toml, or the user's own)")
    .option("--check", "only check the configuration: say what is wrong with it, and start nothing")
    .action(
      run(async (context, { config, check = false }: { config?: string; check?: boolean }) => {
        await runDaemon({ configFile: config, checkOnly: check, stop: context.host.interrupted });
        if (check) await context.print("the configuration is fine\n");
      }),
    );
  daemon
    .command("reload")
    .description("have the running daemon read its configuration again, and say what waits for a restart")
    .action(run(reload));
}

async function reload(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.reloadConfig, {});
  if (context.json) return context.printJson(answer);
  const { applied, needs_restart: waiting } = answer;
  if (applied.length > 0) await context.printLine(`Taken over: ${applied.join(", ")}`);
  if (waiting.length > 0) await context.printLine(`After a restart of the daemon: ${waiting.join(", ")}`);
  if (applied.length + waiting.length === 0) context.note("Nothing has changed.");
}
