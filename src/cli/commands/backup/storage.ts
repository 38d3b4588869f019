/** `svc backup storage …`: where archives are kept. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { ReportedError } from "../../failure.ts";
import type { RunCommand } from "../../run-command.ts";
import type { Column } from "../../render/table.ts";
import { calls, type BackupStorage, type StorageUse } from "../../transport/calls.ts";
import { addPlaceCommands, isDamaged } from "./storage-place.ts";

export function addStorageCommand(parent: Command, run: RunCommand): void {
  const storage = parent
    .command("storage")
    .description("list, add, change, try and remove storages")
    .addHelpText("after", examples);
  storage
    .command("ls", { isDefault: true })
    .alias("list")
    .description("list the storages (also: svc backup storage)")
    .addHelpText("after", listExamples)
    .action(run(list));
  addPlaceCommands(storage, run);
  storage
    .command("test")
    .description("list, write, read and delete there, and say what works")
    .argument("<name>", "the storage")
    .addHelpText("after", testExamples)
    .action(run(test));
  storage
    .command("rm")
    .alias("remove")
    .description("forget a storage; its archives stay where they are")
    .argument("<name>", "the storage")
    .addHelpText("after", removeExamples)
    .action(run(remove));
}

const examples = `
The storage "local" is always there: a directory of the daemon's own. What others are is for root to say.

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
It exits with 1 when one of the four does not work.

Example:
  svc backup storage test far
`;

const removeExamples = `
Its archives are listed again once a storage is added for the same place.

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

/** Or what is wrong with it; empty where it is for root alone to know. */
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
  await context.printLine(`Forgot ${answer.name}`);
  for (const use of answer.used_by) context.note(useText(use, name));
}

/** What to do about a policy or a job that fails from now on. */
function useText({ kind, id, owner }: StorageUse, storage: string): string {
  return kind === "policy"
    ? `The policy of ${id} still names ${storage}. Give it another one: svc backup policy ${id} set --storage NAME`
    : `The job ${id} (of user id ${owner}) still names ${storage}. Give it another one: svc schedule edit ${id} --storage NAME --owner ${owner}`;
}
