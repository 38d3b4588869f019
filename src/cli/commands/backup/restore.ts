/** `svc backup restore`: an archive into its app, or as a new one. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { followProgress } from "../../follow-progress.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirmRemoval } from "../../prompt.ts";
import { escapeControls } from "../../render/escape.ts";
import { formatBytes } from "../../render/units.ts";
import { findArchive, nameHelp, storageHelp, type StorageOption } from "./archive-ref.ts";

interface RestoreOptions extends StorageOption {
  readonly stop?: boolean;
  readonly asNew?: boolean;
  readonly name?: string;
  readonly paths?: readonly string[];
  readonly dryRun?: boolean;
}

export function addRestoreCommand(parent: Command, run: RunCommand): void {
  parent
    .command("restore")
    .description("restore an app from an archive (asks first; --yes does not)")
    .argument("<id>", "the app that it was taken of")
    .argument("<name>", nameHelp)
    .option("--storage <name>", storageHelp)
    .option("--stop", "stop a running app, and start it again afterwards")
    .option("--as-new", "make a new app of it, and leave the other as it is")
    .option("--name <name>", "display name of the new app")
    .option("--paths <path...>", "only these, with all beneath, such as data/notes.txt")
    .option("--dry-run", "check whether it could be restored, and change nothing")
    .action(run(restore));
}

async function restore(
  context: CommandContext,
  id: string,
  name: string,
  options: RestoreOptions,
): Promise<void> {
  const { BackupService, RestoreBackupResponseSchema } = await import("../../../../gen/svc/v1/backup_pb.ts");
  const { messageToRest } = await import("../../transport/rest-json.ts");
  const { stop = false, asNew = false, name: newName = "", paths = [], dryRun = false } = options;
  const ref = await findArchive(context, id, name, options);
  if (!asNew && !dryRun) {
    const what = paths.length === 0 ? id : `${paths.join(", ")} of ${id}`;
    await confirmRemoval(context, {
      question: `Replace ${escapeControls(what)} by ${escapeControls(ref.name)}?`,
      loss: "what the app has now is replaced",
    });
  }
  const request = { ...ref, stopApp: stop, asNew, newName, paths: [...paths], dryRun };
  const events = context.invoke(BackupService.method.restoreBackupStream, [request]);
  const answer = messageToRest(
    RestoreBackupResponseSchema,
    await followProgress(context, `restore ${id}`, events, "result"),
  );
  if (context.json) return context.printJson(answer);
  const amount = `${answer.entries} entries, ${formatBytes(answer.restored_bytes)}`;
  if (dryRun) return context.print(`It can be restored: ${amount}\n`);
  const next = answer.restarted ? "It was started again." : `Start it: svc app start ${answer.app_id}`;
  return context.print(`${escapeControls(`Restored ${answer.app_id} (${amount}). ${next}`)}\n`);
}
