/** `svc file cat|get|put`: the content of files. */
import { statSync } from "node:fs";
import { open, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Command } from "commander";
import { runWithAdvice } from "../../output/advice.ts";
import type { CommandContext } from "../../context.ts";
import { ifFound, UsageError } from "../../output/failure.ts";
import { progressLine, receiveBytes, sendBytes } from "../../output/follow-progress.ts";
import { localError, openLocalFile } from "../../input/local-file.ts";
import type { RunCommand } from "../../run-command.ts";
import { ByteOutput } from "../../output/byte-output.ts";
import { formatBytes } from "../../output/units.ts";
import { decodeSpelling } from "../../../sys/spelled-name.mjs";
import { adviceOnForce, pathHelp, resolvePath, resolveTarget } from "./paths.ts";

interface PutOptions {
  readonly force?: boolean;
  readonly ifMatch?: string;
  readonly mode?: string;
}

export function addContentCommands(parent: Command, run: RunCommand): void {
  parent
    .command("cat")
    .description("write a file to standard output")
    .argument("<path>", pathHelp)
    .action(run(cat));
  parent
    .command("get")
    .description("copy a file from the daemon's host")
    .argument("<path>", pathHelp)
    .argument("[file]", "the local file, or a directory (default: the current directory)")
    .action(run(get));
  parent
    .command("put")
    .description("copy a file to the daemon's host")
    .argument("<file>", "a local file; - for standard input")
    .argument("<path>", `${pathHelp}; with a trailing slash, a directory`)
    .option("-f, --force", "overwrite existing files")
    .option("--if-match <etag>", "overwrite only if the file still has this entity tag; see svc file stat")
    .option("--mode <octal>", "permission bits of a new file (default: 0644)")
    .action(runWithAdvice(run, adviceOnForce)(put));
}

async function contentOf(context: CommandContext, source: string) {
  const { FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const path = await resolvePath(context, source);
  return context.invoke(FileService.method.readFile, [{ path }]);
}

async function cat(context: CommandContext, source: string): Promise<void> {
  const output = new ByteOutput(context.host.stdout);
  for await (const { content } of await contentOf(context, source)) {
    if (content !== undefined) await output.write(content.data);
  }
  await output.end();
}

async function get(context: CommandContext, source: string, file: string | undefined): Promise<void> {
  const name = basename(source.replace(/^[^/:]+:/, ""));
  if (name === "") throw new UsageError(`${JSON.stringify(source)} is not a file name`);
  const dir = file === undefined ? "." : isDirectory(file) ? file : undefined;
  const target = dir === undefined ? (file ?? name) : join(dir, name);
  let sizeBytes = 0;
  const path = dir === undefined ? target : withSpelledName(dir, name);
  const count = async function* (pieces: AsyncIterable<Uint8Array>) {
    for await (const bytes of pieces) {
      sizeBytes += bytes.length;
      yield bytes;
    }
  };
  try {
    using line = progressLine(context, `get ${basename(target)}`);
    const content = await contentOf(context, source);
    const local = await open(path, "wx");
    try {
      await pipeline(receiveBytes(line, content), count, local.createWriteStream());
    } catch (error) {
      await rm(path, { force: true });
      throw error;
    }
  } catch (error) {
    throw localError(error, target);
  }
  return context.printResult(
    { file: target, size_bytes: sizeBytes },
    `Wrote ${target} (${formatBytes(sizeBytes)})`,
  );
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** @param name of the remote file, which may not be valid UTF-8 */
function withSpelledName(dir: string, name: string): Buffer {
  return Buffer.concat([Buffer.from(`${dir}/`), Buffer.from(decodeSpelling(name), "latin1")]);
}

async function put(
  context: CommandContext,
  file: string,
  target: string,
  { force = false, ifMatch = "", mode = "" }: PutOptions,
): Promise<void> {
  const { FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const path = await intoDirectory(context, await resolveTarget(context, target, basename(file)), file);
  const first = { path, overwrite: force, ifMatch, mode };
  const source = await openLocalFile(context.host, file);
  try {
    using line = progressLine(context, `put ${basename(file)}`);
    const requests = pieces(first, sendBytes(line, source));
    const entry = await context.invokeOnce(FileService.method.writeFile, requests);
    await context.printResult(entry, `Wrote ${entry.path} (${formatBytes(entry.size_bytes)})`);
  } catch (error) {
    throw localError(error, file);
  } finally {
    source.bytes.destroy();
  }
}

/** Like cp: an existing directory as the target gets the file. */
async function intoDirectory(context: CommandContext, path: string, file: string): Promise<string> {
  const { FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const entry = await ifFound(context.invokeOnce(FileService.method.statPath, [{ path }]));
  return entry?.type === "directory" ? `${path}/${basename(file)}` : path;
}

/** The first message has no bytes, so an empty file also sends a message. */
async function* pieces(first: object, source: AsyncIterable<Uint8Array>) {
  yield first;
  for await (const data of source) yield { content: { contentType: "", data } };
}
