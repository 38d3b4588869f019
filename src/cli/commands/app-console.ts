/** `svc app attach` and `svc app shell`: a terminal in an app. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { ReportedError } from "../output/failure.ts";
import type { RunCommand } from "../run-command.ts";

interface ConsoleOptions {
  readonly service?: string;
}

const serviceOption = ["--service <name>", "the service, in a compose project with several"] as const;
const detachHelp = "\nCtrl-P Ctrl-Q detaches. The exit code is the program's.\n";

export function addConsoleCommands(parent: Command, run: RunCommand): void {
  parent
    .command("attach")
    .description("open the terminal of an app, or the console that its package names")
    .argument("<id>", "the app")
    .option(...serviceOption)
    .addHelpText("after", detachHelp)
    .action(run((context, id: string, options: ConsoleOptions) => open(context, id, "attach", [], options)));
  parent
    .command("shell")
    .description("open a shell in an app, as its owner, in its directory or container")
    .argument("<id>", "the app")
    .argument("[command...]", "the command to run instead of a shell, after --")
    .option(...serviceOption)
    .addHelpText("after", detachHelp)
    .action(
      run((context, id: string, command: string[], options: ConsoleOptions) =>
        open(context, id, "shell", command, options),
      ),
    );
}

async function open(
  context: CommandContext,
  appId: string,
  session: "attach" | "shell",
  command: readonly string[],
  { service = "" }: ConsoleOptions,
): Promise<void> {
  const { runTerminal } = await import("../terminal-session.ts");
  const exitCode = await runTerminal(context, { appId, session, command, service });
  if (exitCode !== 0) throw new ReportedError(exitCode);
}
