/** `svc file mkdir|mv|cp|rm|chmod|chown`. */
import { posix } from "node:path";
import type { Command } from "commander";
import { runWithAdvice } from "../../advice.ts";
import type { CommandContext } from "../../context.ts";
import { ReportedError, UsageError } from "../../failure.ts";
import { followProgress } from "../../follow-progress.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirmRemoval } from "../../prompt.ts";
import { formatBytes } from "../../render/units.ts";
import { adviceOnForce } from "./advice.ts";
import { pathHelp, resolvePlace, resolveTarget } from "./place.ts";

interface RelocateOptions {
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
    .option("-p, --parents", "missing parents, too; no failure when it is there already")
    .option("--mode <octal>", "its permission bits (default: 0755)")
    .action(run(makeDirectory));
  for (const [name, description, action] of [
    ["mv", "move or rename", move],
    ["cp", "copy a file, or a directory with all that is in it", copy],
  ] as const) {
    parent
      .command(name)
      .description(description)
      .argument("<from>", pathHelp)
      .argument("<to>", `${pathHelp}; ending in a slash, a directory`)
      .option("-f, --force", "replace what is there")
      .action(runWithAdvice(run, adviceOnForce)(action));
  }
  parent
    .command("rm")
    .alias("remove")
    .description("delete files, and directories with all that is in them (asks first; --yes does not)")
    .argument("<path...>", pathHelp)
    .action(run(remove));
  parent
    .command("chmod")
    .description("set permission bits")
    .argument("<mode>", "octal, such as 0644")
    .argument("<path>", pathHelp)
    .option("-R, --recursive", "all that is below it, too")
    .action(
      run((context, mode: string, place: string, options: RecursiveOptions) =>
        setAttributes(context, { mode }, place, options),
      ),
    );
  parent
    .command("chown")
    .description("set owner, group or both")
    .argument("<owner>", "a user, user:group, or :group")
    .argument("<path>", pathHelp)
    .option("-R, --recursive", "all that is below it, too")
    .action(
      run((context, who: string, place: string, options: RecursiveOptions) => {
        const [owner = "", group = ""] = who.split(":", 2);
        if (owner === "" && group === "") throw new UsageError("neither an owner nor a group is named");
        return setAttributes(context, { owner, group }, place, options);
      }),
    );
}

const load = () => import("../../../../gen/svc/v1/file_pb.ts");

async function makeDirectory(
  context: CommandContext,
  place: string,
  { parents = false, mode = "" }: { readonly parents?: boolean; readonly mode?: string },
): Promise<void> {
  const { FileService } = await load();
  const request = { path: await resolvePlace(context, place), parents, mode };
  const entry = await context.invokeOnce(FileService.method.createDirectory, [request]);
  await context.tell(entry, `Made ${entry.path}`);
}

async function move(
  context: CommandContext,
  from: string,
  to: string,
  options: RelocateOptions,
): Promise<void> {
  const { FileService } = await load();
  const request = await relocation(context, from, to, options);
  const entry = await followProgress(context, `move ${from}`, FileService.method.movePathStream, request);
  return context.tell(entry, `Moved to ${entry.path}`);
}

async function copy(
  context: CommandContext,
  from: string,
  to: string,
  options: RelocateOptions,
): Promise<void> {
  const { FileService } = await load();
  const request = await relocation(context, from, to, options);
  const answer = await followProgress(context, `copy ${from}`, FileService.method.copyPathStream, request);
  const size = formatBytes(answer.copied_bytes);
  return context.tell(answer, `Copied to ${answer.entry?.path ?? ""} (${size})`);
}

async function relocation(
  context: CommandContext,
  from: string,
  to: string,
  { force = false }: RelocateOptions,
) {
  const source = await resolvePlace(context, from);
  return {
    from: source,
    to: await resolveTarget(context, to, posix.basename(source)),
    overwrite: force,
  };
}

async function remove(context: CommandContext, places: readonly string[]): Promise<void> {
  const { FileService } = await load();
  const paths: string[] = [];
  for (const place of places) paths.push(await resolvePlace(context, place));
  await confirmRemoval(context, {
    question: `Delete ${paths.join(", ")}?`,
    loss: "what is deleted cannot be had back",
    look: async () => {
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
  wanted: { mode?: string; owner?: string; group?: string },
  place: string,
  { recursive = false }: RecursiveOptions,
): Promise<void> {
  const { FileService } = await load();
  const request = { path: await resolvePlace(context, place), ...wanted, recursive };
  const entry = await context.invokeOnce(FileService.method.setPathAttributes, [request]);
  await context.tell(entry, `${entry.path}: ${entry.mode} ${entry.owner}:${entry.group}`);
}
