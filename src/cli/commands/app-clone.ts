/** `svc app clone`: a full copy under a new id. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { followProgress } from "../follow-progress.ts";
import type { RunCommand } from "../run-command.ts";
import { portsText } from "../render/app-table.ts";
import { escapeControls } from "../render/escape.ts";
import { formatBytes } from "../render/units.ts";

export function addCloneCommand(parent: Command, run: RunCommand): void {
  parent
    .command("clone")
    .description("copy an app with its data; the copy is stopped")
    .argument("<id>", "the app to copy")
    .option("--name <name>", "display name of the copy (default: its id)")
    .action(run((context, id: string, options: { name?: string }) => clone(context, id, options.name)));
}

async function clone(context: CommandContext, id: string, name = ""): Promise<void> {
  const { AppService, CloneAppResponseSchema } = await import("../../../gen/svc/v1/app_pb.ts");
  const { messageToRest } = await import("../transport/rest-json.ts");
  const events = context.invoke(AppService.method.cloneAppStream, [{ id, name }]);
  const result = await followProgress(context, `clone ${id}`, events, "result");
  const copy = messageToRest(CloneAppResponseSchema, result);
  if (context.json) return context.printJson(copy);
  if (copy.source_running) {
    context.note(`${escapeControls(id)} was running: its files were copied as they were at that moment.`);
  }
  const ports = copy.ports.length === 0 ? "" : ` on port ${portsText(copy.ports)}`;
  const text = `Cloned ${id} to ${copy.id} (${formatBytes(copy.copied_bytes)})${ports}`;
  return context.print(`${escapeControls(text)}. Start it: svc app start ${escapeControls(copy.id)}\n`);
}
