/** A manifest that is made of what a directory has: shown, asked about, then written. */
import { lstatSync } from "node:fs";
import type { Stats } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { Remark } from "../authoring/check.ts";
import type { PlanOptions } from "../authoring/derive.ts";
import { chooseNode } from "./nodes/choose-node.ts";
import { exists } from "./exists.ts";
import type { CommandContext } from "./context.ts";
import { exitCodes } from "./exit-codes.ts";
import { ReportedError, UsageError } from "./failure.ts";
import { confirm, isInteractive } from "./prompt.ts";
import { escapeControls, escapeLines } from "./render/escape.ts";
import { canceled } from "./transport/http.ts";

const manifestFile = "svc.yaml";

/**
 * The directory of the package that a path names: a directory, or a file of it that a manifest can be made of. One that has
 * none of its own gets one, when whoever asks wants that.
 * @param path absolute
 */
export async function packageAt(context: CommandContext, path: string): Promise<string> {
  // Of another machine's files nothing is known here.
  const node = chooseNode(context.host, context.options);
  if (node !== undefined && !node.address.startsWith("unix:")) return path;
  const info = statusOf(path);
  if (info === undefined) return path;
  const isFile = info.isFile();
  const dir = isFile ? dirname(path) : path;
  if (exists(join(dir, manifestFile)) || !(isFile || info.isDirectory())) return dir;
  await writePlanned(context, dir, { from: isFile ? basename(path) : undefined });
  return dir;
}

/** `undefined` for what is not there, or not to be seen. */
function statusOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}

/** @throws UsageError where nobody can be asked and the line does not say `--yes`; SvcError `canceled` when the answer is no */
export async function writePlanned(
  context: CommandContext,
  dir: string,
  options: PlanOptions,
): Promise<void> {
  requireOwn(context, dir);
  const [{ planManifest }, { PackageFiles }, { writeFile }] = await Promise.all([
    import("../authoring/derive.ts"),
    import("../authoring/package-files.ts"),
    import("node:fs/promises"),
  ]);
  const plan = await planManifest(new PackageFiles(dir), options);
  const path = join(dir, manifestFile);
  if (!context.json) {
    context.note(escapeControls(`${path} would be, made from ${plan.from}:`));
    context.note(escapeLines(plan.text.trimEnd()).replaceAll(/^/gm, "  "));
    for (const note of plan.notes) context.note(escapeControls(`note: ${note}`));
  }
  await requireConsent(context, path);
  // Never over one that has come meanwhile.
  await writeFile(path, plan.text, { flag: "wx" });
}

async function requireConsent({ host, options }: CommandContext, path: string): Promise<void> {
  if (options.yes === true) return;
  if (!isInteractive(host)) throw new UsageError(`there is no ${path}: write this one with --yes`);
  if (!(await confirm(host, escapeControls(`Write ${path}?`)))) throw canceled();
}

/** Root would follow what a user has put there. @throws UsageError */
export function requireOwn({ host }: CommandContext, dir: string): void {
  const owner = statusOf(dir)?.uid;
  if (host.uid === 0 && owner !== undefined && owner !== 0)
    throw new UsageError(`${dir} is another user's: do this as its owner, without sudo`);
}

/** As compilers say it: `file:line: what`. @throws ReportedError when there are problems */
export async function reportRemarks(
  context: CommandContext,
  report: {
    readonly problems: readonly Remark[];
    readonly advice: readonly Remark[];
    readonly about?: string;
  },
): Promise<void> {
  const { problems, advice, about } = report;
  if (context.json) await context.printJson({ problems, advice });
  else {
    const line = ({ file, line: number, message }: Remark, color: "red" | "yellow", word: string): string =>
      `${escapeControls(`${file}:${number}:`)} ${context.paint(color, word)}${escapeControls(message)}\n`;
    await context.print(
      problems.map((remark) => line(remark, "red", "")).join("") +
        advice.map((remark) => line(remark, "yellow", "advice: ")).join(""),
    );
    if (problems.length === 0) context.note(escapeControls(about ?? "No problems."));
  }
  if (problems.length > 0) throw new ReportedError(exitCodes.failed);
}
