/** `svc setup`: writes the files that this host or user needs besides the program. */
import type { Command } from "commander";
import { completionScripts } from "../completion/completion-scripts.ts";
import type { CommandContext } from "../context.ts";
import { exists } from "../exists.ts";
import type { RunCommand } from "../run-command.ts";

export function addSetupCommand(parent: Command, run: RunCommand): void {
  parent
    .command("setup")
    .description("write missing files: a commented configuration, completions and, with systemd, units")
    .addHelpText(
      "after",
      "\nAs root, svc setup applies to the whole system; otherwise, only to your user. Existing files are not changed, and nothing is started.",
    )
    .action(run(setUpHost));
}

async function setUpHost(context: CommandContext): Promise<void> {
  const { uid, home, env, program, sockets } = context.host;
  const { setUp } = await import("../../setup/setup.ts");
  const result = await setUp({
    environment: { uid, home, env },
    command: program.command,
    unitsDir: program.unitsDir,
    completions: completionScripts,
  });
  if (context.json) {
    await context.printJson(result);
    return;
  }
  const { written, kept, next } = result;
  await context.print(
    [...written.map((path) => `wrote ${path}`), ...kept.map((path) => `kept  ${path}`), ""].join("\n"),
  );
  if (uid !== 0 && exists(sockets.system)) {
    context.note(
      `You can use the system's daemon (${sockets.system}). ` +
        "A daemon of your own needs another port: set [api] listen in your configuration.",
    );
  }
  context.note(`Next: ${next.join(" && ")}`);
}
