/** `svc backup storage …`: where archives are kept. */
import type { Command } from "commander";
import { absoluteIfPath } from "../../absolute-path.ts";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../program.ts";
import { escapeControls } from "../../render/escape.ts";
import type { Column } from "../../render/table.ts";
import { calls, type BackupStorage } from "../../transport/calls.ts";

export function addStorageCommand(parent: Command, run: RunCommand): void {
  const storage = parent.command("storage").description("list, add and remove storages");
  storage
    .command("ls", { isDefault: true })
    .alias("list")
    .description("list the storages (also: svc backup storage)")
    .action(run(list));
  storage
    .command("add")
    .description("add a storage, or change one")
    .argument("<name>", "what --storage calls it")
    .requiredOption("--dir <path>", "a directory of this host that is root's, such as a mounted disk")
    .action(run(add));
  storage
    .command("rm")
    .alias("remove")
    .description("forget a storage; its archives stay where they are")
    .argument("<name>", "the storage")
    .action(run(remove));
}

const columns: readonly Column<BackupStorage>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "KIND", value: ({ s3 }) => (s3 === undefined ? "local" : "s3") },
  {
    title: "WHERE",
    value: ({ s3, local }) => (s3 === undefined ? (local?.dir ?? "") : `${s3.endpoint}/${s3.bucket}`),
  },
];

async function list(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listBackupStorages, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(columns, answer.storages);
}

async function add(context: CommandContext, name: string, { dir }: { dir: string }): Promise<void> {
  const path = dir.startsWith("/") ? dir : absoluteIfPath(`./${dir}`);
  const storage = await context.call(calls.upsertBackupStorage, { name, local: { dir: path } });
  if (context.json) return context.printJson(storage);
  return context.print(
    `${escapeControls(`Added ${storage.name}. Use it: svc backup create ID --storage ${storage.name}`)}\n`,
  );
}

async function remove(context: CommandContext, name: string): Promise<void> {
  const answer = await context.call(calls.removeBackupStorage, { name });
  if (context.json) return context.printJson(answer);
  return context.print(`Forgot ${escapeControls(answer.name)}\n`);
}
