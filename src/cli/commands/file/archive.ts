/** `svc file tar|untar`: archives on the daemon's host. */
import type { Command } from "commander";
import { runWithAdvice } from "../../advice.ts";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../failure.ts";
import { followProgress } from "../../follow-progress.ts";
import type { RunCommand } from "../../run-command.ts";
import { formatBytes } from "../../render/units.ts";
import { adviceOnForce } from "./advice.ts";
import { pathHelp, resolvePlace } from "./place.ts";

interface PackOptions {
  readonly format?: string;
  readonly force?: boolean;
}

interface UnpackOptions extends PackOptions {
  readonly maxEntries?: string;
  readonly maxBytes?: string;
  readonly maxRatio?: string;
}

const formatHelp = "tar.gz, tar.zst or zip (default: by the archive's name)";

export function addArchiveCommands(parent: Command, run: RunCommand): void {
  parent
    .command("tar")
    .description("pack files and directories into an archive: tar.gz, tar.zst or zip")
    .argument("<archive>", pathHelp)
    .argument("<path...>", "what is packed, each under its own name")
    .option("--format <format>", formatHelp)
    .option("-f, --force", "replace what is there")
    .action(runWithAdvice(run, adviceOnForce)(pack));
  parent
    .command("untar")
    .description("unpack an archive into a directory, whole or not at all: tar, tar.gz, tar.zst or zip")
    .argument("<archive>", pathHelp)
    .argument("<directory>", `${pathHelp}; made when it is not there`)
    .option("--format <format>", formatHelp)
    .option("-f, --force", "replace what is there and has a name of the archive's")
    .option("--max-entries <count>", "most entries (default: 1000000)")
    .option("--max-bytes <count>", "most bytes that come out of it (default: 64 GiB)")
    .option("--max-ratio <times>", "how many times larger than itself that may be (default: 200)")
    .action(runWithAdvice(run, adviceOnForce)(unpack));
}

async function pack(
  context: CommandContext,
  archive: string,
  places: readonly string[],
  { format = "", force = false }: PackOptions,
): Promise<void> {
  const { FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const target = await resolvePlace(context, archive);
  const paths: string[] = [];
  for (const place of places) paths.push(await resolvePlace(context, place));
  const request = { paths, target, format, overwrite: force };
  const { createArchiveStream } = FileService.method;
  const entry = await followProgress(context, `pack ${archive}`, createArchiveStream, request);
  return context.tell(entry, `Packed ${entry.path} (${formatBytes(entry.size_bytes)})`);
}

async function unpack(
  context: CommandContext,
  archive: string,
  directory: string,
  { format = "", force = false, maxEntries, maxBytes, maxRatio }: UnpackOptions,
): Promise<void> {
  const { FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const mostBytes = countOf("--max-bytes", maxBytes);
  const request = {
    path: await resolvePlace(context, archive),
    target: await resolvePlace(context, directory),
    format,
    overwrite: force,
    maxEntries: countOf("--max-entries", maxEntries),
    maxBytes: mostBytes === undefined ? undefined : BigInt(mostBytes),
    maxRatio: countOf("--max-ratio", maxRatio),
  };
  const { extractArchiveStream } = FileService.method;
  const answer = await followProgress(context, `unpack ${archive}`, extractArchiveStream, request);
  const { entry, entries, extracted_bytes: bytes } = answer;
  const what = `${entries} ${entries === 1 ? "entry" : "entries"}, ${formatBytes(bytes)}`;
  return context.tell(answer, `Unpacked into ${entry?.path ?? ""} (${what})`);
}

/** @throws UsageError for what is no whole number from 1 on */
function countOf(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^[1-9]\d{0,14}$/.test(text)) throw new UsageError(`${option} must be a whole number from 1 on`);
  return Number(text);
}
