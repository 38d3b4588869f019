/** `svc file ls|stat`. */
import { Option, type Command } from "commander";
import type { FileEntry } from "../../../../gen/svc/v1/file_pb.ts";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { escapeControls } from "../../output/escape.ts";
import type { Column } from "../../output/table.ts";
import { formatBytes } from "../../output/units.ts";
import { pathHelp, resolvePath } from "./paths.ts";

interface ListOptions {
  readonly all?: boolean;
}

/** Entries per page: the most that the daemon returns. */
const pageSize = 2000;

export function addListCommands(parent: Command, run: RunCommand): void {
  parent
    .command("ls")
    .alias("list")
    .description("list a directory")
    .argument("<path>", pathHelp)
    .option("-a, --all", "include hidden files")
    // As ls -l; the list is always long.
    .addOption(new Option("-l").hideHelp())
    .action(run(list));
  parent
    .command("stat")
    .description("show the type, size and owner of a path")
    .argument("<path>", pathHelp)
    .action(run(stat));
}

const columns: readonly Column<FileEntry>[] = [
  { title: "MODE", value: ({ type, mode }) => `${letters[type] ?? "-"} ${mode}`, dispensable: 1 },
  { title: "OWNER", value: ({ owner }) => owner, dispensable: 2 },
  { title: "GROUP", value: ({ group }) => group, dispensable: 3 },
  {
    title: "SIZE",
    value: ({ type, sizeBytes }) => (type === "file" ? formatBytes(Number(sizeBytes)) : "-"),
    align: "right",
  },
  { title: "MODIFIED", value: modifiedText },
  { title: "NAME", value: nameText, isKey: true },
];

/** As ls(1) prints them. */
const letters: Readonly<Record<string, string>> = {
  directory: "d",
  symlink: "l",
  socket: "s",
  fifo: "p",
  block_device: "b",
  char_device: "c",
};

function modifiedText({ modifiedAt }: FileEntry): string {
  if (modifiedAt === undefined) return "-";
  return new Date(Number(modifiedAt.seconds) * 1000).toISOString().replace(/\.\d+Z$/, "Z");
}

function nameText({ name, type, linkTarget }: FileEntry): string {
  if (type === "directory") return `${name}/`;
  return linkTarget === undefined ? name : `${name} -> ${linkTarget}`;
}

async function list(context: CommandContext, target: string, { all = false }: ListOptions): Promise<void> {
  const { FileEntrySchema, FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const { messageToRest } = await import("../../client/rest-json.ts");
  const path = await resolvePath(context, target);
  const request = { path, hidden: all, limit: pageSize };
  let isEmpty = true;
  for await (const { entries } of context.invoke(FileService.method.streamDirectory, [request])) {
    if (context.json) {
      for (const entry of entries) await context.printJsonLine(messageToRest(FileEntrySchema, entry));
    } else if (entries.length > 0) await context.printTable(columns, entries);
    isEmpty &&= entries.length === 0;
  }
  if (isEmpty && !context.json) context.note("The directory is empty.");
}

async function stat(context: CommandContext, target: string): Promise<void> {
  const { FileEntrySchema, FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const { messageToRest } = await import("../../client/rest-json.ts");
  const path = await resolvePath(context, target);
  for await (const entry of context.invoke(FileService.method.statPath, [{ path }])) {
    if (context.json) return context.printJson(messageToRest(FileEntrySchema, entry));
    const rows: [string, string][] = [
      ["Path", entry.path],
      ["Type", entry.type],
      ["Size", `${entry.sizeBytes} B`],
      ["Mode", entry.mode],
      ["Owner", `${entry.owner} (${entry.uid})`],
      ["Group", `${entry.group} (${entry.gid})`],
      ["Modified", modifiedText(entry)],
      ...(entry.linkTarget === undefined ? [] : [["Target", entry.linkTarget] as [string, string]]),
      ...(entry.etag === undefined ? [] : [["ETag", entry.etag] as [string, string]]),
    ];
    await context.print(
      rows.map(([title, text]) => `${`${title}:`.padEnd(10)} ${escapeControls(text)}\n`).join(""),
    );
  }
}
