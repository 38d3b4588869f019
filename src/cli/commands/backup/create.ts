/** `svc backup create`: one archive, to any number of storages. */
import { type Command, Option } from "commander";
import { CreateBackupRequestModes } from "../../../../gen/svc/v1/values.ts";
import { chosenIds, type AllOption, oneByOne } from "../../for-each.ts";
import { calls } from "../../client/calls.ts";
import type { CommandContext } from "../../context.ts";
import { detach, detachOption, type DetachOption } from "../../detach.ts";
import { ReportedError } from "../../output/failure.ts";
import { followProgress } from "../../output/follow-progress.ts";
import { collect, parseCount } from "../../input/option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { formatBytes } from "../../output/units.ts";

export interface CreateOptions extends DetachOption, AllOption {
  readonly dryRun?: boolean;
  readonly storage?: readonly string[];
  readonly keep?: number;
  readonly keepDaily?: number;
  readonly keepWeekly?: number;
  readonly keepMonthly?: number;
  readonly mode?: string;
}

export function addCreateCommand(parent: Command, run: RunCommand): void {
  const count = parseCount(1);
  parent
    .command("create")
    .description("create backups of apps")
    .argument("[id...]", "the apps")
    .option("--all", "back up every app")
    .option("--storage <name>", "target storage (repeatable; default: the package's, else local)", collect)
    .option("--keep <count>", "keep the newest N archives on each storage (default: all)", count)
    .option("--keep-daily <count>", "also keep one archive per day for N days", count)
    .option("--keep-weekly <count>", "also keep one archive per week for N weeks", count)
    .option("--keep-monthly <count>", "also keep one archive per month for N months", count)
    .addOption(
      new Option(
        "--mode <mode>",
        "state of a running app during the backup (default: the package's, else live)",
      ).choices(CreateBackupRequestModes),
    )
    .option("--dry-run", "show what would be backed up, and change nothing")
    .option(...detachOption)
    .addHelpText("after", examples)
    .action(
      run(async (context, ids: string[], options: CreateOptions) =>
        oneByOne(context, await chosenIds(context, ids, options), (id) =>
          (options.dryRun === true ? showPlan : create)(context, id, options),
        ),
      ),
    );
}

const examples = `
Each app is read once for all storages. If an app or a storage fails, the others still get their backups, and the exit code is 1.
With --keep…, older archives are deleted once the new one is complete on that storage.

Short form, for one app without options: svc backup hello

Examples:
  svc backup create hello
  svc backup create hello blog --storage local --storage far --keep 7
  svc backup create hello --keep 3 --keep-daily 7 --keep-weekly 4 --keep-monthly 12
  svc backup create hello --mode pause
  svc backup create hello --json
`;

async function showPlan(context: CommandContext, id: string, { storage }: CreateOptions): Promise<void> {
  const app = await context.call(calls.getApp, { id });
  const disk = await context.call(calls.getAppDisk, { id });
  const bytes = disk.data_bytes + disk.volumes_bytes;
  const storages = storage ?? app.backups?.storages ?? [];
  if (context.json) return context.printJsonLine({ id: app.id, size_bytes: bytes, storages });
  const to = storages.length === 0 ? "the default storage" : storages.join(", ");
  return context.printLine(`Would back up ${app.id} (${formatBytes(bytes)} of data and volumes) to ${to}`);
}

/** @throws ReportedError if any storage failed */
async function create(
  context: CommandContext,
  id: string,
  { storage = [], mode = "", detach: isDetached = false, ...retention }: CreateOptions,
): Promise<void> {
  const { BackupService } = await import("../../../../gen/svc/v1/backup_pb.ts");
  const request = { ...retention, appId: id, storages: [...storage], mode };
  if (isDetached) return detach(context, `backup ${id}`, BackupService.method.createBackup, request);
  const { createBackupStream } = BackupService.method;
  const answer = await followProgress(context, `backup ${id}`, createBackupStream, request);
  const { results, warnings, ...others } = answer;
  if (context.json) await context.printJsonLine({ ...others, results, warnings });
  else {
    for (const warning of warnings) context.note(`warning: ${warning}`);
    for (const result of results) {
      if (result.error !== "")
        context.note(`svc: the backup of ${id} to ${result.storage} failed: ${result.error}`);
      else {
        const removed = result.removed.length === 0 ? "" : `, ${result.removed.length} older removed`;
        const text = `Backed up ${id} to ${result.storage}: ${result.name} (${formatBytes(result.size_bytes)}${removed})`;
        await context.printLine(text);
      }
    }
  }
  if (results.some(({ error }) => error !== "")) throw new ReportedError(1);
}
