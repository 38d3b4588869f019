/** Handles a git repository without a manifest: after consent, clones it and generates a manifest from its files. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { PackageFiles } from "../../authoring/package-files.ts";
import { SvcError, type ReasonPayloads } from "../../errors.ts";
import { parseGitUrl, type GitUrl } from "../../packages/git/git-url.ts";
import { shellWord } from "../../lib/shell-word.ts";
import type { CommandContext } from "../context.ts";
import { exists } from "../exists.ts";
import { AdvisedError, asSvcError } from "../output/failure.ts";
import type { CliHost } from "../host.ts";
import { readsFilesHere } from "../nodes/choose-node.ts";
import { packageAt, requireTrustedPath } from "./package-plan.ts";
import { confirm, isInteractive } from "../input/prompt.ts";

/** The repository, or the directory in it, that has no manifest. */
type NoManifest = ReasonPayloads["no_manifest"];

/**
 * @param revision a branch or a tag; empty for the default branch
 * @param error why it could not be installed as it is
 * @returns the directory to install, with its manifest. It belongs to the calling user, and upgrades read it
 * again
 * @throws the error, if it is about something else, or without a terminal and `--yes`
 */
export async function cloneWithoutManifest(
  context: CommandContext,
  revision: string,
  error: unknown,
): Promise<string> {
  const { host, options } = context;
  const isHere = readsFilesHere(host, options);
  const { url = "", directory = "" } = noManifestOf(error) ?? {};
  const parsed = parseGitUrl(url);
  if (!isHere || !("gitUrl" in parsed) || !isBelow(directory)) throw error;
  const dir = directory === "" ? directoryOf(parsed.gitUrl) : resolve(basename(directory));
  const what = directory === "" ? url : `${directory} of ${url}`;
  if (exists(dir)) throw adviceOnDirectory(error, what, dir, revision);
  if (options.yes !== true && !isInteractive(host)) throw adviceOnYes(error);
  requireTrustedPath(context, dir);
  context.note(`${what} has no svc.yaml.`);
  const question = `Clone it to ${dir}, and generate one there?`;
  if (options.yes !== true && !(await confirm(host, question))) throw error;
  // Another user may have put a link in a sticky directory during the question.
  requireTrustedPath(context, dir);
  // Created here, so that nobody else owns it: git would use an existing empty directory.
  await mkdir(dir, 0o700);
  try {
    const repository = { url: parsed.gitUrl.url, revision };
    await (directory === ""
      ? clone(host, repository, dir)
      : cloneDirectory(host, repository, directory, dir));
    const added = await packageAt(context, dir);
    const update = directory === "" ? `git -C ${shellWord(dir)} pull` : "change its files";
    context.note(`Upgrades read ${dir}, not the repository. To upgrade: ${update}, then run svc upgrade`);
    return added;
  } catch (failure) {
    await rm(dir, { recursive: true, force: true });
    throw failure;
  }
}

function adviceOnYes(error: unknown): unknown {
  const known = asSvcError(error);
  return known && new AdvisedError(known, `${known.message}; pass --yes to generate one in a clone here`);
}

/** For a repository whose clone, or the repository itself, is already there. */
function adviceOnDirectory(error: unknown, what: string, dir: string, revision: string): unknown {
  const known = asSvcError(error);
  const word = shellWord(dir);
  const checkout = revision === "" ? "" : `git -C ${word} checkout ${shellWord(revision)} && `;
  const line = `${checkout}svc install ${word} --yes`;
  return (
    known &&
    new AdvisedError(known, `${what} has no svc.yaml; to generate one in ${dir} and install that: ${line}`)
  );
}

/** Whether a relative path is empty or stays below its start. */
function isBelow(path: string): boolean {
  return path === "" || path.split("/").every((name) => !["", ".", ".."].includes(name));
}

/** The directory name that git would choose. */
function directoryOf({ url, path = url }: GitUrl): string {
  return resolve(basename(path.slice(path.lastIndexOf(":") + 1)).replace(/\.git$/, ""));
}

interface Repository {
  readonly url: string;
  readonly revision: string;
}

async function clone(host: CliHost, repository: Repository, dir: string): Promise<void> {
  await git(host, repository, [
    "clone",
    "--quiet",
    "--depth",
    "1",
    ...branchOf(repository),
    "--",
    repository.url,
    dir,
  ]);
}

/** Clones one directory of a repository. @param dir exists and is empty */
async function cloneDirectory(
  host: CliHost,
  repository: Repository,
  directory: string,
  dir: string,
): Promise<void> {
  const whole = await mkdtemp(`${dir}.`);
  try {
    const brief = ["--quiet", "--depth", "1", "--filter=blob:none", "--no-checkout", ...branchOf(repository)];
    await git(host, repository, ["clone", ...brief, "--", repository.url, whole]);
    await git(host, repository, ["-C", whole, "sparse-checkout", "set", "--no-cone", `/${directory}/`]);
    await git(host, repository, ["-C", whole, "checkout", "--quiet"]);
    // Not a link, which could lead elsewhere.
    if ((await new PackageFiles(whole).type(directory)) !== "directory")
      throw new SvcError("git_failed", `${repository.url} has no directory ${directory}`);
    await rename(join(whole, directory), dir);
  } finally {
    await rm(whole, { recursive: true, force: true });
  }
}

function branchOf({ revision }: Repository): string[] {
  return revision === "" ? [] : ["--branch", revision];
}

async function git({ env, stderr }: CliHost, { url }: Repository, words: readonly string[]): Promise<void> {
  const child = spawn("git", words, { stdio: ["inherit", "ignore", "pipe"], env });
  const closed = once(child, "close");
  // Such a server sends the whole repository, which is harmless.
  for await (const line of createInterface({ input: child.stderr }))
    if (!line.includes("filtering not recognized")) stderr.write(`${line}\n`);
  const [exitCode] = (await closed) as [number | null];
  if (exitCode !== 0) throw new SvcError("git_failed", `git could not clone ${url}: see above`);
}

function noManifestOf(error: unknown): NoManifest | undefined {
  const known = asSvcError(error);
  return known?.reason === "no_manifest" ? (known as SvcError<"no_manifest">).payload : undefined;
}
