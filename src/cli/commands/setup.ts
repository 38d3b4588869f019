/** `svc setup`: what this host, or this user, needs beside the program. */
import type { Command } from "commander";
import { completionScripts } from "../completion-scripts.ts";
import type { CommandContext } from "../context.ts";
import { exists } from "../exists.ts";
import type { RunCommand } from "../run-command.ts";

export function addSetupCommand(parent: Command, run: RunCommand): void {
  parent
    .command("setup")
    .description("write what is missing: a commented configuration, completions and, under systemd, units")
    .addHelpText(
      "after",
      "\nAs root for everybody, else for yourself. Nothing that is there is changed, and nothing is started.",
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
    codeFile: program.codeFile,
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
      `The system's daemon is there for you, too (${sockets.system}). ` +
        "One of your own needs another port than it has: [api] listen of your configuration.",
    );
  }
  context.note(`Next: ${next.join(" && ")}`);
}
