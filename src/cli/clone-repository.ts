/** A git repository that is no package: it is cloned, and a manifest made of what it has, when whoever asks wants that. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, rm } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { SvcError } from "../errors.ts";
import { parseGitUrl, type GitUrl } from "../packages/git-url.ts";
import type { CommandContext } from "./context.ts";
import { exists } from "./exists.ts";
import { asSvcError, UsageError } from "./failure.ts";
import type { CliHost } from "./host.ts";
import { chooseNode } from "./nodes/choose-node.ts";
import { packageAt, requireOwn } from "./package-plan.ts";
import { confirm, isInteractive } from "./prompt.ts";
import { escapeControls } from "./render/escape.ts";

export interface Repository {
  readonly url: string;
  /** A branch or a tag; empty for the default branch. */
  readonly revision: string;
}

/**
 * @param error why it could not be installed as it is
 * @returns the directory to install, with its manifest; it belongs to whoever has asked, and an upgrade takes it afresh
 * @throws the error, where it says something else, or nobody can be asked and the line does not say `--yes`
 */
export async function cloneWithoutManifest(
  context: CommandContext,
  { url, revision }: Repository,
  error: unknown,
): Promise<string> {
  const { host, options } = context;
  const node = chooseNode(host, options);
  const isHere = node === undefined || node.address.startsWith("unix:");
  const parsed = parseGitUrl(url);
  if (!isHere || !lacksManifest(error) || !("gitUrl" in parsed)) throw error;
  if (options.yes !== true && !isInteractive(host)) throw error;
  const dir = directoryOf(parsed.gitUrl);
  if (exists(dir)) throw new UsageError(`${url} has no svc.yaml, and ${dir} is there already: install that`);
  requireOwn(context, dir);
  context.note(escapeControls(`${url} has no svc.yaml.`));
  const question = escapeControls(`Clone it to ${dir}, and make one there?`);
  if (options.yes !== true && !(await confirm(host, question))) throw error;
  // Made by whoever asks, and nobody else's: git would take an empty one that is there.
  await mkdir(dir, 0o700);
  try {
    await clone(host, { url: parsed.gitUrl.url, revision }, dir);
    return await packageAt(context, dir);
  } catch (failure) {
    await rm(dir, { recursive: true, force: true });
    throw failure;
  }
}

/** As git would call it. */
function directoryOf({ url, path = url }: GitUrl): string {
  return resolve(basename(path.slice(path.lastIndexOf(":") + 1)).replace(/\.git$/, ""));
}

async function clone({ env }: CliHost, { url, revision }: Repository, dir: string): Promise<void> {
  const branch = revision === "" ? [] : ["--branch", revision];
  const words = ["clone", "--quiet", "--depth", "1", ...branch, "--", url, dir];
  const git = spawn("git", words, { stdio: ["inherit", "ignore", "inherit"], env });
  const [exitCode] = (await once(git, "exit")) as [number | null];
  if (exitCode !== 0) throw new SvcError("git_failed", `git could not clone ${url}: see above`);
}

/** The daemon names the cause in its sentence alone. */
function lacksManifest(error: unknown): boolean {
  const known = asSvcError(error);
  return known?.reason === "package_invalid" && known.message.startsWith("there is no svc.yaml in ");
}
