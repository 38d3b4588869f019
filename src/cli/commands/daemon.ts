/** `svc daemon`: the daemon itself, in the foreground. */
import type { Command } from "commander";
import type { RunCommand, RunDaemon } from "../run-command.ts";

export function addDaemonCommand(parent: Command, run: RunCommand, runDaemon: RunDaemon): void {
  parent
    .command("daemon")
    .description("run the daemon in the foreground, until SIGTERM or Ctrl-C")
    .option("--config <file>", "configuration file (default: /etc/svc/svc.toml, or the user's own)")
    .action(
      run((context, options: { config?: string }) => runDaemon(options.config, context.host.interrupted)),
    );
}
