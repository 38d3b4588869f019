/** `svc backup restore`: restores an archive into its app, or as a new app. */
import type { Command } from "commander";
import { SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { detach, detachOption, type DetachOption } from "../../detach.ts";
import { AdvisedError, asSvcError, ifFound } from "../../output/failure.ts";
import { followProgress } from "../../output/follow-progress.ts";
import type { RunCommand } from "../../run-command.ts";
import {
  acceptedBy,
  acceptingLicenses,
  acceptRestoredOptions,
  type AcceptOptions,
} from "../../input/accept-license.ts";
import { confirmRemoval } from "../../input/prompt.ts";
import { isUp } from "../../output/app-table.ts";
import { isStopped } from "../../output/schedule-table.ts";
import { formatBytes } from "../../output/units.ts";
import { calls } from "../../client/calls.ts";
import {
  findArchive,
  openingCommand,
  readIdentity,
  type IdentityOption,
  type StorageOption,
} from "./archive-ref.ts";

interface RestoreOptions extends StorageOption, IdentityOption, DetachOption, AcceptOptions {
  readonly stop?: boolean;
  readonly asNew?: boolean;
  readonly name?: string;
  readonly paths?: readonly string[];
  readonly dryRun?: boolean;
}

export function addRestoreCommand(parent: Command, run: RunCommand): void {
  const description =
    "restore an app from an archive (asks for confirmation before it replaces one; skip with --yes)";
  openingCommand(parent, "restore", description, "the app that was backed up")
    .option("--stop", "stop a running app, and start it again afterwards")
    .option("--as-new", "restore as a new app, and leave the existing app unchanged")
    .option("--name <name>", "name and ID of the new app (with --as-new)")
    .option("--paths <path...>", "restore only these paths and everything below them, such as data/notes.txt")
    .option("--dry-run", "check whether the archive can be restored, and change nothing")
    .option(...acceptRestoredOptions[0])
    .option(...acceptRestoredOptions[1])
    .option(...detachOption)
    .addHelpText("after", examples)
    .action(run(restore));
}

const examples = `
The archive is unpacked next to the app and its checksums are compared before it replaces the app. If anything fails, the app is
unchanged. If the app does not exist, it is created from the archive.

For an archive that this daemon did not make, svc asks for its licenses and permissions, as an install does. If the app belongs
to root, svc also asks whether root may run what is in the archive.

Examples:
  svc backup restore hello latest --dry-run
  svc backup restore hello latest --stop
  svc backup restore hello latest --paths data/notes.txt data/photos
  svc backup restore hello latest --as-new --name hello-old
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
  // Ask only if there is an app to replace, and only for paths that can be restored.
  const app = asNew || dryRun ? undefined : await ifFound(context.call(calls.getApp, { id }));
  if (app !== undefined && isUp(app) && !stop) {
    const running = new SvcError("app_running", `app "${id}" is running; stop it before restoring it`);
    throw withStop(running, id);
  }
  if (app !== undefined && paths.length > 0) {
    const { appId, ...archive } = ref;
    const plan = { app_id: appId, ...archive, stop_app: stop, paths, dry_run: true, identity };
    await context.call(calls.restoreBackup, plan).catch((error: unknown) => {
      throw withStop(error, id);
    });
  }
  if (app !== undefined) {
    const what = paths.length === 0 ? id : `${paths.join(", ")} of ${id}`;
    await confirmRemoval(context, {
      question: `Replace ${what} (owner ${ownerText(app)}) by ${ref.name}?`,
      loss: `this replaces ${what}`,
    });
  }
  // A dry run stops nothing.
  const request = { ...ref, stopApp: stop || dryRun, asNew, newName, paths: [...paths], dryRun, identity };
  if (options.detach === true) {
    const detached = { ...request, ...acceptedBy(options) };
    return detach(context, `restore ${id}`, BackupService.method.restoreBackup, detached);
  }
  const { restoreBackupStream } = BackupService.method;
  const answer = await acceptingLicenses(context, id, acceptedBy(options), (accepted) =>
    followProgress(context, `restore ${id}`, restoreBackupStream, { ...request, ...accepted }),
  ).catch((error: unknown) => {
    throw withStop(error, id);
  });
  if (context.json) return context.printJson(answer);
  for (const warning of answer.warnings) context.note(`warning: ${warning}`);
  const amount = `${answer.entries} entries, ${formatBytes(answer.restored_bytes)}`;
  if (dryRun) {
    for (const license of answer.licenses) context.note(`needs --accept-license: ${license}`);
    for (const permission of answer.permissions) context.note(`needs --accept-permissions: ${permission}`);
    return context.printLine(
      `The archive can be restored: ${amount}. Its owner would be ${ownerText(answer)}`,
    );
  }
  if (app === undefined) await noteWhatIsMissing(context, answer.app_id);
  const next = answer.restarted ? "The app was started again." : `Start it: svc start ${answer.app_id}`;
  const what = paths.length === 0 ? answer.app_id : `${paths.join(", ")} of ${answer.app_id}`;
  return context.printLine(`Restored ${what} (${amount}). ${next}`);
}

/** Names what an archive does not contain: the jobs and the backup policy of its app. If a call fails, its note is omitted. */
async function noteWhatIsMissing(context: CommandContext, id: string): Promise<void> {
  const [jobs, policy] = await Promise.all([
    context.call(calls.listSchedules, { app: id }).catch(() => undefined),
    context.call(calls.getBackupPolicy, { app_id: id }).catch(() => undefined),
  ]);
  const disabled = (jobs?.schedules ?? [])
    .filter((job) => job.action?.app === id && (job.enabled === false || isStopped(job)))
    .map((job) => job.id);
  if (disabled.length > 0)
    context.note(`Jobs of ${id} are disabled. Enable them: svc schedule enable ${disabled.join(" ")}`);
  if (policy?.trigger === "")
    context.note(
      `The backup policy of ${id} was not restored, because archives have none. Set one: svc backup policy ${id} set --trigger 03:30`,
    );
}

/** The name, or the user ID where the host has none. */
function ownerText({
  owner,
  owner_name: name,
}: {
  readonly owner: number;
  readonly owner_name: string;
}): string {
  return name === "" ? String(owner) : name;
}

/** The restore itself can also stop a running app and start it again afterwards. */
function withStop(error: unknown, id: string): unknown {
  const known = asSvcError(error);
  if (known?.reason !== "app_running") return error;
  return new AdvisedError(known, `${known.message}: svc stop ${id}; or pass --stop`);
}
