/** `svc daemon`: the daemon itself, in the foreground. */
import type { Command } from "commander";
import type { RunCommand, RunDaemon } from "../run-command.ts";

export function addDaemonCommand(parent: Command, run: RunCommand, runDaemon: RunDaemon): void {
  parent
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
}
