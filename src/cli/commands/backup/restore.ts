/** `svc backup restore`: an archive into its app, or as a new one. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { AdvisedError, asSvcError, ifFound } from "../../failure.ts";
import { followProgress } from "../../follow-progress.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirmRemoval } from "../../prompt.ts";
import { formatBytes } from "../../render/units.ts";
import { calls } from "../../transport/calls.ts";
import {
  findArchive,
  openingCommand,
  readIdentity,
  type IdentityOption,
  type StorageOption,
} from "./archive-ref.ts";

interface RestoreOptions extends StorageOption, IdentityOption {
  readonly stop?: boolean;
  readonly asNew?: boolean;
  readonly name?: string;
  readonly paths?: readonly string[];
  readonly dryRun?: boolean;
}

export function addRestoreCommand(parent: Command, run: RunCommand): void {
  const description = "restore an app from an archive (asks before it replaces one; --yes does not)";
  openingCommand(parent, "restore", description, "the app that it was taken of")
    .option("--stop", "stop a running app, and start it again afterwards")
    .option("--as-new", "make a new app of it, and leave the other as it is")
    .option("--name <name>", "display name of the new app")
    .option("--paths <path...>", "only these, with all beneath, such as data/notes.txt")
    .option("--dry-run", "check whether it could be restored, and change nothing")
    .addHelpText("after", examples)
    .action(run(restore));
}

const examples = `
The archive is laid out beside the app and compared with its checksums, and only then put in the app's place: when anything
fails, the app is as it was. An app that is not there, or not any more, is made from the archive alone.

Examples:
  svc backup restore hello latest --dry-run
  svc backup restore hello latest --stop
  svc backup restore hello latest --paths data/notes.txt data/photos
  svc backup restore hello latest --as-new --name "Hello of yesterday"
  svc backup restore hello latest --stop --yes --json
`;

async function restore(
  context: CommandContext,
  id: string,
  name: string,
  options: RestoreOptions,
): Promise<void> {
  const { BackupService } = await import("../../../../gen/svc/v1/backup_pb.ts");
  const { stop = false, asNew = false, name: newName = "", paths = [], dryRun = false } = options;
  const identity = await readIdentity(context, options);
  const ref = await findArchive(context, id, name, options);
  // Where there is something to lose.
  if (!asNew && !dryRun && (await ifFound(context.call(calls.getApp, { id }))) !== undefined) {
    const what = paths.length === 0 ? id : `${paths.join(", ")} of ${id}`;
    await confirmRemoval(context, {
      question: `Replace ${what} by ${ref.name}?`,
      loss: "what the app has now is replaced",
    });
  }
  // What changes nothing stops nothing.
  const request = { ...ref, stopApp: stop || dryRun, asNew, newName, paths: [...paths], dryRun, identity };
  const { restoreBackupStream } = BackupService.method;
  const work = followProgress(context, `restore ${id}`, restoreBackupStream, request);
  const answer = await work.catch((error: unknown) => {
    throw withStop(error, id);
  });
  if (context.json) return context.printJson(answer);
  for (const warning of answer.warnings) context.note(`warning: ${warning}`);
  const amount = `${answer.entries} entries, ${formatBytes(answer.restored_bytes)}`;
  if (dryRun) return context.print(`It can be restored: ${amount}\n`);
  const next = answer.restarted ? "It was started again." : `Start it: svc app start ${answer.app_id}`;
  const what = paths.length === 0 ? answer.app_id : `${paths.join(", ")} of ${answer.app_id}`;
  return context.printLine(`Restored ${what} (${amount}). ${next}`);
}

/** An app that runs can also be stopped by the restore itself, which starts it again. */
function withStop(error: unknown, id: string): unknown {
  const known = asSvcError(error);
  if (known?.reason !== "app_running") return error;
  return new AdvisedError(known, `${known.message}: svc app stop ${id}; or pass --stop`);
}
