/** A git repository that is no package: it is cloned, and a manifest made of what it has, when whoever asks wants that. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { PackageFiles } from "../authoring/package-files.ts";
import { SvcError, type ReasonPayloads } from "../errors.ts";
import { parseGitUrl, type GitUrl } from "../packages/git-url.ts";
import type { CommandContext } from "./context.ts";
import { exists } from "./exists.ts";
import { AdvisedError, asSvcError, UsageError } from "./failure.ts";
import type { CliHost } from "./host.ts";
import { readsFilesHere } from "./nodes/choose-node.ts";
import { packageAt, requireOwn } from "./package-plan.ts";
import { confirm, isInteractive } from "./prompt.ts";

/** Where a repository, or a directory in it, has no manifest. */
type NoManifest = ReasonPayloads["no_manifest"];

/**
 * @param revision a branch or a tag; empty for the default branch
 * @param error why it could not be installed as it is
 * @returns the directory to install, with its manifest; it belongs to whoever has asked, and an upgrade takes it afresh
 * @throws the error, where it says something else, or nobody can be asked and the line does not say `--yes`
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
  if (options.yes !== true && !isInteractive(host)) throw adviceOnYes(error);
  const dir = directory === "" ? directoryOf(parsed.gitUrl) : resolve(basename(directory));
  const what = directory === "" ? url : `${directory} of ${url}`;
  if (exists(dir)) throw new UsageError(`${what} has no svc.yaml, and ${dir} is there already: install that`);
  requireOwn(context, dir);
  context.note(`${what} has no svc.yaml.`);
  const question = `Clone it to ${dir}, and make one there?`;
  if (options.yes !== true && !(await confirm(host, question))) throw error;
  // Made by whoever asks, and nobody else's: git would take an empty one that is there.
  await mkdir(dir, 0o700);
  try {
    const repository = { url: parsed.gitUrl.url, revision };
    await (directory === ""
      ? clone(host, repository, dir)
      : cloneDirectory(host, repository, directory, dir));
    return await packageAt(context, dir);
  } catch (failure) {
    await rm(dir, { recursive: true, force: true });
    throw failure;
  }
}

function adviceOnYes(error: unknown): unknown {
  const known = asSvcError(error);
  return known && new AdvisedError(known, `${known.message}, and --yes has it made in a clone here`);
}

/** Whether a path is empty, or leads to something below where it begins. */
function isBelow(path: string): boolean {
  return path === "" || path.split("/").every((name) => !["", ".", ".."].includes(name));
}

/** As git would call it. */
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

/** Brings one directory of a repository. @param dir is there, and empty */
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
    // No link leads elsewhere.
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

async function git({ env }: CliHost, { url }: Repository, words: readonly string[]): Promise<void> {
  const child = spawn("git", words, { stdio: ["inherit", "ignore", "inherit"], env });
  const [exitCode] = (await once(child, "exit")) as [number | null];
  if (exitCode !== 0) throw new SvcError("git_failed", `git could not clone ${url}: see above`);
}

function noManifestOf(error: unknown): NoManifest | undefined {
  const known = asSvcError(error);
  return known?.reason === "no_manifest" ? (known as SvcError<"no_manifest">).payload : undefined;
}
