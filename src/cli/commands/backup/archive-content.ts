/** `svc backup verify|browse|get|download|upload`: the contents of archives. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { detach, detachOption, type DetachOption } from "../../detach.ts";
import { followProgress, progressLine, receiveBytes, sendBytes } from "../../output/follow-progress.ts";
import { openLocalFile } from "../../input/local-file.ts";
import type { RunCommand } from "../../run-command.ts";
import { ByteOutput } from "../../output/byte-output.ts";
import type { Column } from "../../output/table.ts";
import { formatBytes } from "../../output/units.ts";
import { calls, type BackupEntry } from "../../client/calls.ts";
import {
  archiveCommand,
  findArchive,
  identityHelp,
  openingCommand,
  readIdentity,
  type IdentityOption,
  type StorageOption,
} from "./archive-ref.ts";

export function addArchiveCommands(parent: Command, run: RunCommand): void {
  openingCommand(parent, "verify", "read a whole archive and compare its checksums")
    .option("--deep", "also restore it to a temporary directory")
    .option(...detachOption)
    .addHelpText("after", verifyExamples)
    .action(run(verify));
  openingCommand(parent, "browse", "list a directory of an archive")
    .argument("[path]", "such as data/photos")
    .addHelpText("after", browseExamples)
    .action(run(browse));
  openingCommand(parent, "get", "write one file of an archive to standard output")
    .argument("<path>", "such as data/notes.txt")
    .addHelpText("after", getExamples)
    .action(run(get));
  parent
    .command("upload")
    .description("upload an archive to a storage, after checking that it is intact")
    .argument("<file>", "the archive, - for standard input")
    .option("--storage <name>", "target storage", "local")
    .option("--identity <file>", identityHelp)
    .addHelpText("after", uploadExamples)
    .action(run(upload));
  archiveCommand(parent, "download", "write an archive to standard output")
    .addHelpText("after", downloadExamples)
    .action(run(download));
}

const verifyExamples = `
Exits with 1 if the archive is damaged. --keep and backup policies never delete the newest verified archive.

Examples:
  svc backup verify hello latest
  svc backup verify hello latest --deep --storage far
`;

const browseExamples = `
Examples:
  svc backup browse hello latest
  svc backup browse hello latest data/photos --json
`;

const getExamples = `
Reads only the part of the archive that contains the file.

Example:
  svc backup get hello latest data/notes.txt > notes.txt
`;

const uploadExamples = `
The archive keeps its owner. Regular users can upload only their own archives.

Examples:
  svc backup upload hello.tar.zst --storage disk
  ssh other svc backup download hello latest | svc backup upload -
`;

const downloadExamples = `
Standard tools can read the archive: zstd -dc hello.tar.zst | tar x

Examples:
  svc backup download hello latest > hello.tar.zst
  svc backup download hello latest --storage far | zstd -dc | tar t
`;
type OpeningOptions = StorageOption & IdentityOption;

async function verify(
  context: CommandContext,
  id: string,
  name: string,
  options: OpeningOptions & DetachOption & { deep?: boolean },
): Promise<void> {
  const identity = await readIdentity(context, options);
  const { BackupService } = await import("../../../../gen/svc/v1/backup_pb.ts");
  const ref = await findArchive(context, id, name, options);
  const request = { ...ref, deep: options.deep ?? false, identity };
  if (options.detach === true)
    return detach(context, `verify ${id}`, BackupService.method.verifyBackup, request);
  const { verifyBackupStream } = BackupService.method;
  const answer = await followProgress(context, `verify ${id}`, verifyBackupStream, request);
  const how = answer.restored ? "intact, and a trial restore succeeded" : "intact";
  const text = `${answer.name} is ${how}: ${answer.entries} entries, ${formatBytes(answer.content_bytes)}`;
  return context.printResult(answer, text);
}

const columns: readonly Column<BackupEntry>[] = [
  { title: "MODE", value: ({ mode }) => mode, dispensable: 1 },
  {
    title: "SIZE",
    value: ({ type, size_bytes }) => (type === "file" ? formatBytes(size_bytes) : "-"),
    align: "right",
  },
  { title: "MODIFIED", value: ({ modified_at }) => modified_at ?? "" },
  { title: "PATH", value: pathText, isKey: true },
];

function pathText({ path, type, target }: BackupEntry): string {
  if (type === "directory") return `${path}/`;
  return target === "" ? path : `${path} -> ${target}`;
}

async function browse(
  context: CommandContext,
  id: string,
  name: string,
  path = "",
  options: OpeningOptions,
): Promise<void> {
  const identity = await readIdentity(context, options);
  const ref = await findArchive(context, id, name, options);
  const answer = await context.call(calls.browseBackup, {
    app_id: id,
    storage: ref.storage,
    name: ref.name,
    path,
    identity,
  });
  if (context.json) return context.printJson(answer);
  await context.printTable(columns, answer.entries, "The directory is empty.");
  if (answer.next_page_token !== "") context.note("More entries exist.");
}

async function get(
  context: CommandContext,
  id: string,
  name: string,
  path: string,
  options: OpeningOptions,
): Promise<void> {
  const identity = await readIdentity(context, options);
  const { BackupService } = await import("../../../../gen/svc/v1/backup_pb.ts");
  const ref = await findArchive(context, id, name, options);
  const output = new ByteOutput(context.host.stdout);
  const pieces = context.invoke(BackupService.method.readBackupFile, [{ ...ref, path, identity }]);
  for await (const { content } of pieces) if (content !== undefined) await output.write(content.data);
  await output.end();
}

async function download(
  context: CommandContext,
  id: string,
  name: string,
  options: StorageOption,
): Promise<void> {
  const { BackupService } = await import("../../../../gen/svc/v1/backup_pb.ts");
  const ref = await findArchive(context, id, name, options);
  const output = new ByteOutput(context.host.stdout);
  using line = progressLine(context, `download ${id}`);
  const pieces = context.invoke(BackupService.method.downloadBackup, [ref]);
  for await (const bytes of receiveBytes(line, pieces)) await output.write(bytes);
  await output.end();
}

async function upload(
  context: CommandContext,
  file: string,
  { storage = "local", ...options }: OpeningOptions,
): Promise<void> {
  const identity = await readIdentity(context, options);
  const { BackupService } = await import("../../../../gen/svc/v1/backup_pb.ts");
  using line = progressLine(context, `upload to ${storage}`);
  const source = await openLocalFile(context.host, file);
  try {
    const requests = uploadRequests({ storage, identity }, sendBytes(line, source));
    const archive = await context.invokeOnce(BackupService.method.uploadBackup, requests);
    await context.printResult(archive, `Uploaded ${archive.name} of ${archive.app_id} to ${storage}`);
  } finally {
    source.bytes.destroy();
  }
}

async function* uploadRequests(
  { storage, identity }: { storage: string; identity: string },
  bytes: AsyncIterable<Uint8Array>,
) {
  yield { storage, identity };
  for await (const data of bytes) yield { storage, content: { data } };
}
