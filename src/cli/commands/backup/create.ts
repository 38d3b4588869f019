/** `svc backup create`: one archive, to any number of storages. */
import { type Command, Option } from "commander";
import { CreateBackupRequestModes } from "../../../../gen/svc/v1/words.ts";
import type { CommandContext } from "../../context.ts";
import { ReportedError } from "../../failure.ts";
import { followProgress } from "../../follow-progress.ts";
import { oneByOne } from "../../for-each.ts";
import { collect, parseCount } from "../../option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { formatBytes } from "../../render/units.ts";

export interface CreateOptions {
  readonly storage?: readonly string[];
  readonly keep?: number;
  readonly keepDaily?: number;
  readonly keepWeekly?: number;
  readonly keepMonthly?: number;
  readonly mode?: string;
}

export function addCreateCommand(parent: Command, run: RunCommand): void {
  const count = parseCount(1, 2 ** 32 - 1);
  parent
    .command("create")
    .description("back apps up")
    .argument("<id...>", "the apps")
    .option("--storage <name>", "where to; again for more (default: the package's own, else local)", collect)
    .option("--keep <count>", "how many archives to keep there (default: all)", count)
    .option("--keep-daily <count>", "beyond those, the newest of each of so many days", count)
    .option("--keep-weekly <count>", "and of so many weeks", count)
    .option("--keep-monthly <count>", "and of so many months", count)
    .addOption(
      new Option(
        "--mode <mode>",
        "what a running app does meanwhile (default: the package's own, else live)",
      ).choices(CreateBackupRequestModes),
    )
    .addHelpText("after", examples)
    .action(
      run((context, ids: string[], options: CreateOptions) =>
        oneByOne(context, ids, (id) => create(context, id, options)),
      ),
    );
}

const examples = `
Each app is read once, whatever the number of storages; one that fails leaves the others theirs, and the exit code is 1. Of several
apps one that fails keeps none of the others from its backup.
With --keep…, older archives go once the new one is whole on that storage.

Examples:
  svc backup create hello
  svc backup create hello blog --storage local --storage far --keep 7
  svc backup create hello --keep 3 --keep-daily 7 --keep-weekly 4 --keep-monthly 12
  svc backup create hello --mode pause
  svc backup create hello --json
`;

/** @throws ReportedError when a storage has it not */
async function create(
  context: CommandContext,
  id: string,
  { storage = [], mode = "", ...retention }: CreateOptions,
): Promise<void> {
  const { BackupService } = await import("../../../../gen/svc/v1/backup_pb.ts");
  const request = { ...retention, appId: id, storages: [...storage], mode };
  const { createBackupStream } = BackupService.method;
  const answer = await followProgress(context, `backup ${id}`, createBackupStream, request);
  const { results, warnings, ...others } = answer;
  if (context.json) await context.printJsonLine({ ...others, results, warnings });
  else {
    for (const warning of warnings) context.note(`warning: ${warning}`);
    for (const result of results) {
      if (result.error !== "") context.note(`svc: ${id} to ${result.storage}: ${result.error}`);
      else {
        const removed = result.removed.length === 0 ? "" : `, ${result.removed.length} older removed`;
        const text = `Backed up ${id} to ${result.storage}: ${result.name} (${formatBytes(result.size_bytes)}${removed})`;
        await context.printLine(text);
      }
    }
  }
  if (results.some(({ error }) => error !== "")) throw new ReportedError(1);
}
