/** `svc app export`: an app as manifests for another engine. */
import { writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { Option, type Command } from "commander";
import { ExportAppRequestTos } from "../../../gen/svc/v1/values.ts";
import type { CommandContext } from "../context.ts";
import { exists } from "../exists.ts";
import { UnusableFileError, UsageError } from "../output/failure.ts";
import { makeTrustedDirectory } from "../packages/package-plan.ts";
import type { RunCommand } from "../run-command.ts";
import { escapeControls, escapeLines } from "../output/escape.ts";
import { calls } from "../client/calls.ts";

interface ExportOptions {
  readonly to: string;
  readonly output?: string;
}

export function addExportCommand(parent: Command, run: RunCommand): void {
  parent
    .command("export")
    .description("print manifests that run an app on another engine")
    .argument("<id>", "the app")
    .addOption(
      new Option("--to <engine>", "target engine").choices(ExportAppRequestTos).makeOptionMandatory(),
    )
    .option("-o, --output <dir>", "write the files to this directory; existing files are not overwritten")
    .action(run(exportApp));
}

async function exportApp(context: CommandContext, id: string, { to, output }: ExportOptions): Promise<void> {
  const exported = await context.call(calls.exportApp, { id, to });
  if (context.json) return context.printJson(exported);
  const { files, notes } = exported;
  const [only, ...others] = files;
  if (output === undefined && others.length > 0) {
    throw new UsageError(`this export has ${files.length} files: choose a directory with --output`);
  }
  if (output === undefined) await context.print(escapeLines(only?.content ?? ""));
  else await write(context, resolve(output), files);
  for (const note of notes) context.note(`Note: ${note}`);
}

async function write(
  context: CommandContext,
  dir: string,
  files: readonly { name: string; content: string }[],
): Promise<void> {
  for (const { name } of files) {
    // The daemon must not choose where a file is written.
    if (name !== basename(name) || ["", ".", ".."].includes(name)) {
      throw new UsageError(`the daemon returned an invalid file name: "${escapeControls(name)}"`);
    }
  }
  makeTrustedDirectory(context, dir);
  for (const { name } of files)
    if (exists(join(dir, name))) throw new UnusableFileError(`${join(dir, name)} already exists`);
  for (const { name, content } of files) {
    await writeFile(join(dir, name), content, { flag: "wx" });
    await context.printLine(join(dir, name));
  }
}
