/** `svc file mkdir|mv|cp|rm|chmod|chown`. */
import { posix } from "node:path";
import type { Command } from "commander";
import { detach, detachOption, type DetachOption } from "../../detach.ts";
import { runWithAdvice } from "../../output/advice.ts";
import type { CommandContext } from "../../context.ts";
import { ReportedError, UsageError } from "../../output/failure.ts";
import { followProgress } from "../../output/follow-progress.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirmRemoval } from "../../input/prompt.ts";
import { formatBytes } from "../../output/units.ts";
import { shellWord } from "../../../lib/shell-word.ts";
import { adviceOnForce, isLocal, pathHelp, resolvePath, resolveTarget } from "./paths.ts";

interface RelocateOptions extends DetachOption {
  readonly force?: boolean;
}

interface RecursiveOptions {
  readonly recursive?: boolean;
}

export function addChangeCommands(parent: Command, run: RunCommand): void {
  parent
    .command("mkdir")
    .description("make a directory")
    .argument("<path>", pathHelp)
    .option("-p, --parents", "also make missing parents; do not fail if the directory exists")
    .option("--mode <octal>", "permission bits (default: 0755)")
    .action(run(makeDirectory));
  for (const [name, description, action] of [
    ["mv", "move or rename", move],
    ["cp", "copy a file, or a directory with its content", copy],
  ] as const) {
    parent
      .command(name)
      .description(description)
      .argument("<from>", pathHelp)
      .argument("<to>", `${pathHelp}; with a trailing slash, a directory`)
      .option("-f, --force", "overwrite existing files")
      .option(...detachOption)
      .action(runWithAdvice(run, adviceOnForce)(action));
  }
  parent
    .command("rm")
    .alias("remove")
    .description("delete files, and directories with their content (asks for confirmation; skip with --yes)")
    .argument("<path...>", pathHelp)
    .action(run(remove));
  parent
    .command("chmod")
    .description("set permission bits")
    .argument("<mode>", "octal, such as 0644")
    .argument("<path>", pathHelp)
    .option("-R, --recursive", "include everything below")
    .action(
      run((context, mode: string, target: string, options: RecursiveOptions) =>
        setAttributes(context, { mode }, target, options),
      ),
    );
  parent
    .command("chown")
    .description("set owner, group or both")
    .argument("<owner>", "a user, user:group, or :group")
    .argument("<path>", pathHelp)
    .option("-R, --recursive", "include everything below")
    .action(
      run((context, who: string, target: string, options: RecursiveOptions) => {
        const [owner = "", group = ""] = who.split(":", 2);
        if (owner === "" && group === "") throw new UsageError("name an owner or a group");
        return setAttributes(context, { owner, group }, target, options);
      }),
    );
}

const load = () => import("../../../../gen/svc/v1/file_pb.ts");

async function makeDirectory(
  context: CommandContext,
  target: string,
  { parents = false, mode = "" }: { readonly parents?: boolean; readonly mode?: string },
): Promise<void> {
  const { FileService } = await load();
  const request = { path: await resolvePath(context, target), parents, mode };
  const entry = await context.invokeOnce(FileService.method.createDirectory, [request]);
  await context.printResult(entry, `Made ${entry.path}`);
}

async function move(
  context: CommandContext,
  from: string,
  to: string,
  options: RelocateOptions,
): Promise<void> {
  const { FileService } = await load();
  const request = await relocation(context, from, to, options);
  if (options.detach === true) return detach(context, `move ${from}`, FileService.method.movePath, request);
  const entry = await followProgress(context, `move ${from}`, FileService.method.movePathStream, request);
  return context.printResult(entry, `Moved to ${entry.path}`);
}

async function copy(
  context: CommandContext,
  from: string,
  to: string,
  options: RelocateOptions,
): Promise<void> {
  const { FileService } = await load();
  const request = await relocation(context, from, to, options);
  if (options.detach === true) return detach(context, `copy ${from}`, FileService.method.copyPath, request);
  const answer = await followProgress(context, `copy ${from}`, FileService.method.copyPathStream, request);
  const size = formatBytes(answer.copied_bytes);
  return context.printResult(answer, `Copied to ${answer.entry?.path ?? ""} (${size})`);
}

async function relocation(
  context: CommandContext,
  from: string,
  to: string,
  { force = false }: RelocateOptions,
) {
  const source = await resolvePath(context, from);
  if (isLocal(to)) throw new UsageError(`to copy it here: svc file get ${shellWord(from)} ${shellWord(to)}`);
  return {
    from: source,
    to: await resolveTarget(context, to, posix.basename(source)),
    overwrite: force,
  };
}

async function remove(context: CommandContext, targets: readonly string[]): Promise<void> {
  const { FileService } = await load();
  const paths: string[] = [];
  for (const target of targets) paths.push(await resolvePath(context, target));
  await confirmRemoval(context, {
    question: `Delete ${paths.join(", ")}?`,
    loss: "deleted files cannot be recovered",
    checkTarget: async () => {
      for (const path of paths) await context.invokeOnce(FileService.method.statPath, [{ path }]);
    },
  });
  const answer = await followProgress(context, "delete", FileService.method.deletePathsStream, { paths });
  if (context.json) await context.printJson(answer);
  else {
    for (const path of answer.deleted) await context.printLine(`Deleted ${path}`);
    for (const { error } of answer.failed) context.note(`svc: ${error}`);
  }
  if (answer.failed_count > 0) throw new ReportedError(1);
}

async function setAttributes(
  context: CommandContext,
  attributes: { mode?: string; owner?: string; group?: string },
  target: string,
  { recursive = false }: RecursiveOptions,
): Promise<void> {
  const { FileService } = await load();
  const request = { path: await resolvePath(context, target), ...attributes, recursive };
  const entry = await context.invokeOnce(FileService.method.setPathAttributes, [request]);
  await context.printResult(entry, `${entry.path}: ${entry.mode} ${entry.owner}:${entry.group}`);
}
