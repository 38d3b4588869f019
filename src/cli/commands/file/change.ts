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

const load = () =>
  Promise.all([import("../../../../gen/svc/v1/file_pb.ts"), import("../../transport/rest-json.ts")]);

async function makeDirectory(
  context: CommandContext,
  place: string,
  { parents = false, mode = "" }: { readonly parents?: boolean; readonly mode?: string },
): Promise<void> {
  const [{ FileEntrySchema, FileService }, { messageToRest }] = await load();
  const request = { path: await resolvePlace(context, place), parents, mode };
  for await (const entry of context.invoke(FileService.method.createDirectory, [request])) {
    await context.tell(messageToRest(FileEntrySchema, entry), `Made ${entry.path}`);
  }
}

async function move(
  context: CommandContext,
  from: string,
  to: string,
  options: RelocateOptions,
): Promise<void> {
  const [{ FileEntrySchema, FileService }, { messageToRest }] = await load();
  const request = await relocation(context, from, to, options);
  const events = context.invoke(FileService.method.movePathStream, [request]);
  const entry = await followProgress(context, `move ${from}`, events, "result");
  return context.tell(messageToRest(FileEntrySchema, entry), `Moved to ${entry.path}`);
}

async function copy(
  context: CommandContext,
  from: string,
  to: string,
  options: RelocateOptions,
): Promise<void> {
  const [{ CopyPathResponseSchema, FileService }, { messageToRest }] = await load();
  const request = await relocation(context, from, to, options);
  const events = context.invoke(FileService.method.copyPathStream, [request]);
  const answer = await followProgress(context, `copy ${from}`, events, "result");
  if (context.json) return context.printJson(messageToRest(CopyPathResponseSchema, answer));
  const size = formatBytes(Number(answer.copiedBytes));
  return context.printLine(`Copied to ${answer.entry?.path ?? ""} (${size})`);
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
  const [{ DeletePathsResponseSchema, FileService }, { messageToRest }] = await load();
  const paths: string[] = [];
  for (const place of places) paths.push(await resolvePlace(context, place));
  await confirmRemoval(context, {
    question: `Delete ${paths.join(", ")}?`,
    loss: "what is deleted cannot be had back",
    look: async () => {
      for (const path of paths)
        await Array.fromAsync(context.invoke(FileService.method.statPath, [{ path }]));
    },
  });
  const events = context.invoke(FileService.method.deletePathsStream, [{ paths }]);
  const answer = await followProgress(context, "delete", events, "result");
  if (context.json) await context.printJson(messageToRest(DeletePathsResponseSchema, answer));
  else {
    for (const path of answer.deleted) await context.printLine(`Deleted ${path}`);
    for (const { error } of answer.failed) context.note(`svc: ${error}`);
  }
  if (answer.failedCount > 0n) throw new ReportedError(1);
}

async function setAttributes(
  context: CommandContext,
  wanted: { mode?: string; owner?: string; group?: string },
  place: string,
  { recursive = false }: RecursiveOptions,
): Promise<void> {
  const [{ FileEntrySchema, FileService }, { messageToRest }] = await load();
  const request = { path: await resolvePlace(context, place), ...wanted, recursive };
  for await (const entry of context.invoke(FileService.method.setPathAttributes, [request])) {
    if (context.json) await context.printJson(messageToRest(FileEntrySchema, entry));
    else {
      const text = `${entry.path}: ${entry.mode} ${entry.owner}:${entry.group}`;
      await context.printLine(text);
    }
  }
}
