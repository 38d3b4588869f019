/** `svc rename`: changes the display name of an app. */
import type { Command } from "commander";
import { calls } from "../client/calls.ts";
import type { RunCommand } from "../run-command.ts";

export function addRenameCommand(parent: Command, run: RunCommand): void {
  parent
    .command("rename")
    .description("change the display name of an app; its ID stays")
    .argument("<id>", "the app")
    .argument("<name>", "the new name, which the list and the web page show")
    .addHelpText("after", examples)
    .action(
      run(async (context, id: string, name: string) => {
        const app = await context.call(calls.renameApp, { id, name });
        return context.printResult(app, `${app.id} is now named "${app.name}". Its ID stays ${app.id}.`);
      }),
    );
}

const examples = `
Commands and addresses use the ID. A copy with another ID: svc clone ID --name NAME

Examples:
  svc rename hello "Front page"
`;
