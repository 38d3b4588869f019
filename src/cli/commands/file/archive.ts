/** `svc file tar|untar`: archives on the daemon's host. */
import type { Command } from "commander";
import { detach, detachOption, type DetachOption } from "../../detach.ts";
import { runWithAdvice } from "../../output/advice.ts";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../output/failure.ts";
import { followProgress } from "../../output/follow-progress.ts";
import type { RunCommand } from "../../run-command.ts";
import { formatBytes } from "../../output/units.ts";
import { adviceOnForce, pathHelp, resolvePath } from "./paths.ts";

interface PackOptions extends DetachOption {
  readonly format?: string;
  readonly force?: boolean;
}

interface UnpackOptions extends PackOptions {
  readonly maxEntries?: string;
  readonly maxBytes?: string;
  readonly maxRatio?: string;
  readonly names?: string;
}

const formatHelp = "tar.gz, tar.zst or zip (default: by the archive's name)";

export function addArchiveCommands(parent: Command, run: RunCommand): void {
  parent
    .command("tar")
    .description("pack files and directories into an archive: tar.gz, tar.zst or zip")
    .argument("<archive>", pathHelp)
    .argument("<path...>", "files and directories to pack, each under its own name")
    .option("--format <format>", formatHelp)
    .option("-f, --force", "overwrite existing files")
    .option(...detachOption)
    .action(runWithAdvice(run, adviceOnForce)(pack));
  parent
    .command("untar")
    .description("unpack an archive to a directory, completely or not at all")
    .argument("<archive>", pathHelp)
    .argument("<directory>", `${pathHelp}; created if missing`)
    .option("--format <format>", `tar, tar.xz, tar.bz2, ${formatHelp}`)
    .option("-f, --force", "overwrite existing files")
    .option(
      "--names <encoding>",
      "encoding of names that are not UTF-8: cp437 (default for zip), windows-1252, gbk, big5, shift_jis, euc-kr, windows-1251 or cp866",
    )
    .option("--max-entries <count>", "limit for entries (default: 1000000)")
    .option("--max-bytes <count>", "limit for the unpacked size in bytes (default: 64 GiB)")
    .option("--max-ratio <times>", "limit for the ratio of unpacked to packed size (default: 200)")
    .option(...detachOption)
    .action(runWithAdvice(run, adviceOnForce)(unpack));
}

async function pack(
  context: CommandContext,
  archive: string,
  sources: readonly string[],
  { format = "", force = false, detach: isDetached = false }: PackOptions,
): Promise<void> {
  const { FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const target = await resolvePath(context, archive);
  const paths: string[] = [];
  for (const source of sources) paths.push(await resolvePath(context, source));
  const request = { paths, target, format, overwrite: force };
  const { createArchive, createArchiveStream } = FileService.method;
  if (isDetached) return detach(context, `pack ${archive}`, createArchive, request);
  const entry = await followProgress(context, `pack ${archive}`, createArchiveStream, request);
  return context.printResult(entry, `Packed ${entry.path} (${formatBytes(entry.size_bytes)})`);
}

async function unpack(
  context: CommandContext,
  archive: string,
  directory: string,
  {
    format = "",
    names = "",
    force = false,
    detach: isDetached = false,
    maxEntries,
    maxBytes,
    maxRatio,
  }: UnpackOptions,
): Promise<void> {
  const { FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const mostBytes = countOf("--max-bytes", maxBytes);
  const request = {
    path: await resolvePath(context, archive),
    target: await resolvePath(context, directory),
    format,
    nameEncoding: names,
    overwrite: force,
    maxEntries: countOf("--max-entries", maxEntries),
    maxBytes: mostBytes === undefined ? undefined : BigInt(mostBytes),
    maxRatio: countOf("--max-ratio", maxRatio),
  };
  const { extractArchive, extractArchiveStream } = FileService.method;
  if (isDetached) return detach(context, `unpack ${archive}`, extractArchive, request);
  const answer = await followProgress(context, `unpack ${archive}`, extractArchiveStream, request);
  const { entry, entries, extracted_bytes: bytes } = answer;
  const what = `${entries} ${entries === 1 ? "entry" : "entries"}, ${formatBytes(bytes)}`;
  return context.printResult(answer, `Unpacked into ${entry?.path ?? ""} (${what})`);
}

/** @throws UsageError unless it is a whole number of at least 1 */
function countOf(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^[1-9]\d{0,14}$/.test(text)) throw new UsageError(`${option} must be a whole number of at least 1`);
  return Number(text);
}
