/** `svc backup ls|show|rm`: existing archives. */
import type { Command } from "commander";
import { SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirmRemoval } from "../../input/prompt.ts";
import { escapeControls } from "../../output/escape.ts";
import type { Column } from "../../output/table.ts";
import { formatAge, formatBytes } from "../../output/units.ts";
import { calls, type BackupArchive } from "../../client/calls.ts";
import {
  archiveCommand,
  type ArchiveRef,
  findArchive,
  openingCommand,
  readIdentity,
  type IdentityOption,
  type StorageOption,
} from "./archive-ref.ts";
import { forEachName } from "../../for-each.ts";
import { watchable, watchOption } from "../../output/watched.ts";

export function addListCommands(parent: Command, run: RunCommand): void {
  parent
    .command("ls")
    .alias("list")
    .description("list archives, newest first")
    .argument("[id]", "only archives of this app")
    .option("--storage <name>", "only archives on this storage")
    .option(...watchOption)
    .addHelpText("after", listExamples)
    .action(run(watchable(list)));
  openingCommand(parent, "show", "show details of an archive")
    .addHelpText("after", showExamples)
    .action(run(show));
  archiveCommand(parent, "rm", "delete archives (asks for confirmation; skip with --yes)", {
    isExact: true,
    argument: "<archive...>",
  })
    .alias("remove")
    .addHelpText("after", removeExamples)
    .action(run(remove));
}

const listExamples = `
NODE shows which node created the archive, since nodes can share a storage: this node, or the start of another node's ID.
VERIFIED shows the last check by svc backup verify: checksums ("verified"), or a trial restore ("restored").

Examples:
  svc backup ls
  svc backup ls hello --storage far
  svc backup ls hello --json
`;

const showExamples = `
Examples:
  svc backup show hello latest
  svc backup show hello latest --storage far --json
`;

const removeExamples = `
To delete all archives of an app: svc backup rm hello $(svc backup ls hello -q)

Examples:
  svc backup rm hello 20260102T033000000Z-hello-u0-0a1b2c3d-4e5f60.tar.zst
  svc backup rm hello latest --storage far --yes
`;

function columnsAt(nowMs: number): readonly Column<BackupArchive>[] {
  return [
    { title: "NAME", value: ({ name }) => name },
    { title: "APP", value: ({ app_id }) => app_id, dispensable: 2 },
    { title: "STORAGE", value: ({ storage }) => storage },
    {
      title: "NODE",
      value: ({ node, from_this_node: isOwn }) => (isOwn ? "this node" : node),
      dispensable: 1,
    },
    { title: "CREATED", value: ({ created_at }) => formatAge(created_at, nowMs) },
    { title: "SIZE", value: ({ size_bytes }) => formatBytes(size_bytes), align: "right" },
    { title: "VERIFIED", value: provenText, dispensable: 1 },
  ];
}

function provenText({ verified_at, restored_at }: BackupArchive): string {
  if (restored_at !== undefined) return "restored";
  return verified_at === undefined ? "-" : "verified";
}

/** @throws SvcError `unavailable` if the storage in `--storage` cannot be listed */
async function list(context: CommandContext, appId = "", { storage = "" }: StorageOption): Promise<void> {
  const answer = await context.call(calls.listBackups, { app_id: appId, storage });
  const [failure] = answer.errors;
  if (storage !== "" && failure !== undefined && answer.backups.length === 0)
    throw new SvcError("unavailable", `storage ${storage}: ${failure.error}`);
  if (context.json) return context.printJson(answer);
  for (const { storage: which, error } of answer.errors) {
    context.note(`warning: storage ${which}: ${error}`);
  }
  const none =
    answer.errors.length > 0
      ? "No backups on the storages that could be listed."
      : appId === ""
        ? "No backups yet. Create one: svc backup create ID"
        : `No backups of ${appId} yet. Create one: svc backup create ${appId}`;
  await context.printTable(columnsAt(context.host.now()), answer.backups, none);
  if (answer.next_page_token !== "")
    context.note("More archives exist; pass an app or --storage to see them.");
}

async function show(
  context: CommandContext,
  id: string,
  name: string,
  options: StorageOption & IdentityOption,
): Promise<void> {
  const identity = await readIdentity(context, options);
  const ref = await findArchive(context, id, name, options);
  const details = await context.call(calls.getBackup, {
    app_id: id,
    storage: ref.storage,
    name: ref.name,
    identity,
  });
  if (context.json) return context.printJson(details);
  const rows: [string, string][] = [
    ["Name", ref.name],
    ["Storage", ref.storage],
    ["Node", details.archive?.from_this_node === true ? "this node" : (details.archive?.node ?? "")],
    ["App", `${id} (${details.package_id} ${details.version}, ${details.runtime})`],
    ["Owner", details.owner_name],
    ["Created", `${details.archive?.created_at ?? ""} by svc ${details.svc_version}, ${details.mode}`],
    [
      "Size",
      `${formatBytes(details.archive?.size_bytes ?? 0)} (${formatBytes(details.content_bytes)} in ${details.entries} entries before compression)`,
    ],
    ["Verified", details.archive?.verified_at ?? "never"],
    ["Restored", details.archive?.restored_at ?? "never"],
    ...details.warnings.map((warning): [string, string] => ["Warning", warning]),
  ];
  return context.print(
    rows.map(([title, text]) => `${`${title}:`.padEnd(10)} ${escapeControls(text)}\n`).join(""),
  );
}

async function remove(
  context: CommandContext,
  id: string,
  names: readonly string[],
  options: StorageOption,
): Promise<void> {
  const found = new Map<string, ArchiveRef>();
  for (const name of names) {
    const ref = await findArchive(context, id, name, { ...options, isExact: true });
    found.set(ref.name, ref);
  }
  const refs = [...found.values()];
  await confirmRemoval(context, {
    question: `Delete ${refs.map(({ name, storage }) => `${name} on ${storage}`).join(", ")}?`,
    loss: `deleting ${refs.length === 1 ? "an archive" : "archives"} cannot be undone`,
  });
  await forEachName(context, [...found.keys()], {
    call: (name) =>
      context.call(calls.deleteBackup, { app_id: id, storage: found.get(name)?.storage ?? "", name }),
    text: ({ name }) => `Deleted ${name}`,
  });
}
