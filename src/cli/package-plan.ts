/** A manifest that is made of what a directory has: shown, asked about, then written. */
import { lstatSync, mkdirSync, readlinkSync, type Stats } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import type { Remark } from "../authoring/check.ts";
import type { PlanOptions } from "../authoring/derive.ts";
import type { PackageFiles } from "../authoring/package-files.ts";
import { readsFilesHere } from "./nodes/choose-node.ts";
import { exists } from "./exists.ts";
import type { CommandContext } from "./context.ts";
import { exitCodes } from "./exit-codes.ts";
import { ReportedError, UnusableFileError, UsageError } from "./failure.ts";
import { confirm, isInteractive } from "./prompt.ts";
import { escapeControls } from "./render/escape.ts";
import { canceled } from "./transport/http.ts";

const manifestFile = "svc.yaml";

/**
 * The directory of the package that a path names: a directory, or a file of it that a manifest can be made of. One that has
 * none of its own gets one, when whoever asks wants that.
 * @param path absolute
 */
export async function packageAt(context: CommandContext, path: string): Promise<string> {
  // Of another machine's files nothing is known here.
  if (!readsFilesHere(context.host, context.options)) return path;
  const info = statusOf(path);
  if (info === undefined) return path;
  const isFile = info.isFile();
  const dir = isFile ? dirname(path) : path;
  if (!isFile && !info.isDirectory()) return dir;
  const from = isFile ? basename(path) : undefined;
  if (!exists(join(dir, manifestFile))) await writePlanned(context, dir, { from });
  else if (from !== undefined && from !== manifestFile && !context.json) {
    const said = `note: ${join(dir, manifestFile)} is what is installed; it is not made anew from ${from}`;
    context.note(said);
  }
  return dir;
}

/** `undefined` for what is not there, or not to be seen; of a link itself. */
function statusOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}

interface WriteOptions extends PlanOptions {
  /** Files that are written, too, by name; the manifest is made of them alone. Those that are there already stay. */
  readonly begunWith?: Readonly<Record<string, string>>;
}

/**
 * @throws UsageError where nobody can be asked and the line does not say `--yes`, and for a file that is there and is another
 * one; SvcError `canceled` when the answer is no
 */
export async function writePlanned(
  context: CommandContext,
  dir: string,
  { begunWith, ...options }: WriteOptions,
): Promise<void> {
  requireOwn(context, dir);
  const [{ planManifest }, { PackageFiles, PlannedFiles }, { mkdir, writeFile }] = await Promise.all([
    import("../authoring/derive.ts"),
    import("../authoring/package-files.ts"),
    import("node:fs/promises"),
  ]);
  const there = new PackageFiles(dir);
  const files = begunWith === undefined ? there : new PlannedFiles(dir, begunWith);
  const plan = await planManifest(files, options);
  const missing = await missingOf(there, { ...begunWith, ...plan.files });
  const path = join(dir, manifestFile);
  if (!context.json) {
    for (const [name] of missing) context.note(`${join(dir, name)} would be written`);
    context.note(`${path} would be, made from ${plan.from}:`);
    for (const line of plan.text.trimEnd().split(/\r?\n/)) context.note(`  ${line}`);
    for (const note of plan.notes) context.note(`note: ${note}`);
  }
  await requireConsent(context, path, missing.length);
  // Never over one that has come meanwhile. The manifest is last: without it the same command goes on after an interruption.
  for (const [name, text] of [...missing, [manifestFile, plan.text] as const]) {
    const file = join(dir, name);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text, { flag: "wx" });
    if (!context.json && name !== manifestFile) context.note(`wrote ${file}`);
  }
}

/** Those that are not there yet. @throws UsageError for one that is there and says something else */
async function missingOf(
  there: PackageFiles,
  texts: Readonly<Record<string, string>>,
): Promise<readonly (readonly [name: string, text: string])[]> {
  const missing: (readonly [string, string])[] = [];
  for (const [name, text] of Object.entries(texts)) {
    if (!(await there.has(name))) missing.push([name, text]);
    else if ((await there.text(name)) !== text)
      throw new UsageError(
        `${join(there.root, name)} is there already, and is another: begin in a new directory`,
      );
  }
  return missing;
}

/** @param others files that are written with it */
async function requireConsent(
  { host, options }: CommandContext,
  path: string,
  others: number,
): Promise<void> {
  if (options.yes === true) return;
  if (!isInteractive(host)) throw new UsageError(`there is no ${path}: write this one with --yes`);
  const what = others === 0 ? path : `${path} and what it was made of`;
  if (!(await confirm(host, `Write ${what}?`))) throw canceled();
}

/**
 * Root would follow what a user has put there; of what is not there yet, where it would be. Whoever may rename anything on the way
 * could do so at any moment.
 * @throws UsageError
 */
export function requireOwn({ host }: CommandContext, dir: string): void {
  if (host.uid !== 0) return;
  let at = dir;
  while (statusOf(at) === undefined && dirname(at) !== at) at = dirname(at);
  for (const place of wayTo(at)) {
    const status = statusOf(place);
    if (status === undefined) continue;
    if (status.uid !== 0)
      throw new UnusableFileError(`${place} is another user's: do this as its owner, without sudo`);
    // With the sticky bit everybody renames what is their own alone.
    const isEverybodys = status.isDirectory() && (status.mode & 0o1002) === 0o002;
    if (isEverybodys)
      throw new UnusableFileError(`everybody may change ${place}: do this in another directory`);
  }
}

/** What leads to a path, and itself, from the root on; links with where they lead. */
function* wayTo(path: string, seen = new Set<string>()): Generator<string, void> {
  if (seen.has(path)) return;
  seen.add(path);
  yield* wayTo(dirname(path), seen);
  yield path;
  if (statusOf(path)?.isSymbolicLink() === true)
    yield* wayTo(resolve(dirname(path), readlinkSync(path)), seen);
}

/** Makes what is missing of a directory, never through what another user has put there meanwhile. @throws UsageError */
export function makeOwn(context: CommandContext, dir: string): void {
  requireOwn(context, dir);
  const missing: string[] = [];
  for (let at = dir; statusOf(at) === undefined && dirname(at) !== at; at = dirname(at)) missing.unshift(at);
  for (const path of missing) mkdirSync(path);
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
    if (problems.length === 0) context.note(about ?? "No problems.");
  }
  if (problems.length > 0) throw new ReportedError(exitCodes.failed);
}
