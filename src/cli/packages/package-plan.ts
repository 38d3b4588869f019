/** A manifest generated from the files of a directory: shown, confirmed, then written. */
import { lstatSync, mkdirSync, readlinkSync, type Stats } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import type { Remark } from "../../authoring/check.ts";
import type { PlanOptions } from "../../authoring/derive.ts";
import type { PackageFiles } from "../../authoring/package-files.ts";
import { readsFilesHere } from "../nodes/choose-node.ts";
import { exists } from "../exists.ts";
import type { CommandContext } from "../context.ts";
import { exitCodes } from "../output/exit-codes.ts";
import { ReportedError, UnusableFileError, UsageError } from "../output/failure.ts";
import { confirm, isInteractive } from "../input/prompt.ts";
import { escapeControls } from "../output/escape.ts";
import { canceled } from "../client/http.ts";

const manifestFile = "svc.yaml";

/**
 * The package directory for a path, which is a directory or a file that a manifest can be generated from. A
 * directory without a manifest gets one if the user agrees.
 * @param path absolute
 * @returns undefined if a dry run showed the manifest that is missing
 */
export async function packageAt(context: CommandContext, path: string): Promise<string>;
export async function packageAt(
  context: CommandContext,
  path: string,
  options: DryRunOption,
): Promise<string | undefined>;
export async function packageAt(
  context: CommandContext,
  path: string,
  { dryRun = false }: DryRunOption = {},
): Promise<string | undefined> {
  // Files of another host are unknown here.
  if (!readsFilesHere(context.host, context.options)) return path;
  const info = statusOf(path);
  if (info === undefined) return path;
  const isFile = info.isFile();
  const dir = isFile ? dirname(path) : path;
  if (!isFile && !info.isDirectory()) return dir;
  const from = isFile ? basename(path) : undefined;
  if (!exists(join(dir, manifestFile))) {
    await writePlanned(context, dir, { from, dryRun });
    if (dryRun) return undefined;
  } else if (from !== undefined && from !== manifestFile && !context.json) {
    const message = `note: using ${join(dir, manifestFile)}; to generate it again from ${from}, delete it`;
    context.note(message);
  }
  return dir;
}

/** Does not follow links. Undefined if the path does not exist or is not visible. */
function statusOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}

export interface DryRunOption {
  /** Shows the manifest, and writes nothing. */
  readonly dryRun?: boolean;
}

interface WriteOptions extends PlanOptions, DryRunOption {
  /** Additional files to write, by name. They are the only input of the manifest; existing ones stay. */
  readonly template?: Readonly<Record<string, string>>;
}

/**
 * @throws UsageError without a terminal and `--yes`, and if a file exists with other content;
 * SvcError `canceled` if the user declines
 */
export async function writePlanned(
  context: CommandContext,
  dir: string,
  { template, dryRun = false, ...options }: WriteOptions,
): Promise<void> {
  requireTrustedPath(context, dir);
  const [{ planManifest }, { findCompose }, { PackageFiles, PlannedFiles }, { mkdir, writeFile }] =
    await Promise.all([
      import("../../authoring/derive.ts"),
      import("../../authoring/compose-program.ts"),
      import("../../authoring/package-files.ts"),
      import("node:fs/promises"),
    ]);
  const existing = new PackageFiles(dir);
  const files = template === undefined ? existing : new PlannedFiles(dir, template);
  const plan = await planManifest(files, { ...options, findCompose: () => findCompose(context.host.env) });
  const missing = await missingOf(existing, { ...template, ...plan.files });
  const path = join(dir, manifestFile);
  if (!context.json) {
    for (const [name] of missing) context.note(`${join(dir, name)} would be written`);
    context.note(`svc generates ${path} from ${plan.from}:`);
    for (const line of plan.text.trimEnd().split(/\r?\n/)) context.note(`  ${line}`);
    for (const note of plan.notes) context.note(`note: ${note}`);
  }
  if (dryRun)
    return context.json ? context.printJson({ path, manifest: plan.text, notes: plan.notes }) : undefined;
  await requireConsent(context, path, missing.length);
  // Another user may have put a link in a sticky directory during the question.
  makeTrustedDirectory(context, dir);
  // Never overwrites a file created since. The manifest is last: without it, the same command continues after
  // an interruption.
  for (const [name, text] of [...missing, [manifestFile, plan.text] as const]) {
    const file = join(dir, name);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text, { flag: "wx" });
    if (!context.json && name !== manifestFile) context.note(`wrote ${file}`);
  }
}

/** The files that do not exist yet. @throws UsageError if a file exists with other content */
async function missingOf(
  files: PackageFiles,
  texts: Readonly<Record<string, string>>,
): Promise<readonly (readonly [name: string, text: string])[]> {
  const missing: (readonly [string, string])[] = [];
  for (const [name, text] of Object.entries(texts)) {
    if (!(await files.has(name))) missing.push([name, text]);
    else if ((await files.text(name)) !== text)
      throw new UsageError(
        `${join(files.root, name)} already exists with other content: start in a new directory`,
      );
  }
  return missing;
}

/** @param others number of files that are written with it */
async function requireConsent(
  { host, options }: CommandContext,
  path: string,
  others: number,
): Promise<void> {
  if (options.yes === true) return;
  if (!isInteractive(host)) throw new UsageError(`this writes ${path}; pass --yes to confirm`);
  const what = others === 0 ? path : `${path} and the files it is generated from`;
  if (!(await confirm(host, `Write ${what}?`))) throw canceled();
}

/**
 * For root: requires that root owns each part of the path and no other user can write there. Root would
 * follow links that a user has put there, and a user who can rename a parent directory could do so at any
 * time. For a missing path, checks the closest existing parent.
 * @throws UsageError
 */
export function requireTrustedPath({ host }: CommandContext, dir: string): void {
  if (host.uid !== 0) return;
  let at = dir;
  while (statusOf(at) === undefined && dirname(at) !== at) at = dirname(at);
  for (const path of pathTo(at)) {
    const status = statusOf(path);
    if (status === undefined) continue;
    if (status.uid !== 0)
      throw new UnusableFileError(
        `${path} belongs to another user: run the command as that user, without sudo`,
      );
    if (isWritableByOthers(status))
      throw new UnusableFileError(
        `${path} is writable by other users: use a directory that only root can write to`,
      );
  }
}

/**
 * Whether other users can rename entries of a directory that root owns. With the sticky bit, they can rename
 * only their own entries.
 */
function isWritableByOthers(status: Stats): boolean {
  if (!status.isDirectory() || (status.mode & 0o1000) !== 0) return false;
  return (status.mode & (status.gid === 0 ? 0o002 : 0o022)) !== 0;
}

/** All parents of a path from the root on, and the path itself, including the targets of links. */
function* pathTo(path: string, seen = new Set<string>()): Generator<string, void> {
  if (seen.has(path)) return;
  seen.add(path);
  yield* pathTo(dirname(path), seen);
  yield path;
  if (statusOf(path)?.isSymbolicLink() === true)
    yield* pathTo(resolve(dirname(path), readlinkSync(path)), seen);
}

/**
 * Creates the missing parts of a directory, never through anything another user has created since.
 * @throws UsageError
 */
export function makeTrustedDirectory(context: CommandContext, dir: string): void {
  requireTrustedPath(context, dir);
  const missing: string[] = [];
  for (let at = dir; statusOf(at) === undefined && dirname(at) !== at; at = dirname(at)) missing.unshift(at);
  for (const path of missing) mkdirSync(path);
}

/** Prints remarks in the format of compilers: `file:line: what`. @throws ReportedError if there are problems */
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
