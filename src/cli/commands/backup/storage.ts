/** `svc backup storage …`: where archives are stored. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { ReportedError } from "../../output/failure.ts";
import type { RunCommand } from "../../run-command.ts";
import type { Column } from "../../output/table.ts";
import { calls, type BackupStorage, type StorageUse } from "../../client/calls.ts";
import { addStorageEditCommands, isDamaged } from "./storage-edit.ts";

export function addStorageCommand(parent: Command, run: RunCommand): void {
  const storage = parent
    .command("storage")
    .description("list, add, change, test and remove storages")
    .addHelpText("after", examples);
  storage
    .command("ls", { isDefault: true })
    .alias("list")
    .description("list the storages (also: svc backup storage)")
    .addHelpText("after", listExamples)
    .action(run(list));
  addStorageEditCommands(storage, run);
  storage
    .command("test")
    .description("test listing, writing, reading and deleting on a storage")
    .argument("<name>", "the storage")
    .addHelpText("after", testExamples)
    .action(run(test));
  storage
    .command("rm")
    .alias("remove")
    .description("remove a storage from the list; its archives are not deleted")
    .argument("<name>", "the storage")
    .addHelpText("after", removeExamples)
    .action(run(remove));
}

const examples = `
The storage "local" always exists; it is a directory of the daemon. Only root can add or change other storages.

Examples:
  svc backup storage ls
  svc backup storage add disk --dir /mnt/disk/backups
  svc backup storage edit disk --max-rate 10000000
  svc backup storage test disk
  svc backup storage rm disk
`;

const listExamples = `
Examples:
  svc backup storage
  svc backup storage ls --json
`;

const testExamples = `
Exits with 1 if one of the four tests fails.

Example:
  svc backup storage test far
`;

const removeExamples = `
To list its archives again, add a storage with the same location.

Example:
  svc backup storage rm far
`;

const columns: readonly Column<BackupStorage>[] = [
  { title: "NAME", value: ({ name }) => name },
  {
    title: "KIND",
    value: (storage) => (isDamaged(storage) ? "" : storage.s3 === undefined ? "local" : "s3"),
  },
  {
    title: "WHERE",
    shrinkTo: 16,
    value: whereOf,
  },
];

/** The location, or the problem; empty if only root may see it. */
function whereOf(storage: BackupStorage): string {
  const { s3, local, problem } = storage;
  if (isDamaged(storage)) return problem;
  if (s3 === undefined) return local?.dir ?? "";
  return s3.bucket === "" ? "" : `${s3.endpoint}/${s3.bucket}`;
}

async function list(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listBackupStorages, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(columns, answer.storages);
}

async function test(context: CommandContext, name: string): Promise<void> {
  const answer = await context.call(calls.testBackupStorage, { name });
  if (context.json) await context.printJson(answer);
  else
    for (const { name: check, ok, error } of answer.checks)
      await context.printLine(`${check}: ${ok ? "works" : error}`);
  if (answer.checks.some(({ ok }) => !ok)) throw new ReportedError(1);
}

async function remove(context: CommandContext, name: string): Promise<void> {
  const answer = await context.call(calls.removeBackupStorage, { name });
  if (context.json) return context.printJson(answer);
  await context.printLine(`Removed ${answer.name} from the list of storages; its archives stay`);
  for (const use of answer.used_by) context.note(useText(use, name));
}

/** Advice for a policy or a job that fails from now on. */
function useText({ kind, id, owner }: StorageUse, storage: string): string {
  return kind === "policy"
    ? `The policy of ${id} still uses ${storage}. Choose another storage: svc backup policy ${id} set --storage NAME`
    : `The job ${id} (of user id ${owner}) still uses ${storage}. Choose another storage: svc schedule edit ${id} --storage NAME --owner ${owner}`;
}
