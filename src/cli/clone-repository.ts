/** A git repository that is no package: it is cloned, and a manifest made of what it has, when whoever asks wants that. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { basename, resolve } from "node:path";
import { SvcError } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import { exists } from "./exists.ts";
import { asSvcError, UsageError } from "./failure.ts";
import { chooseNode } from "./nodes/choose-node.ts";
import { packageAt } from "./package-plan.ts";
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
  if (!isHere || !lacksManifest(error) || !isUrl(url)) throw error;
  if (options.yes !== true && !isInteractive(host)) throw error;
  const dir = resolve(basename(url).replace(/\.git$/, ""));
  if (exists(dir)) throw new UsageError(`${url} has no svc.yaml, and ${dir} is there already: install that`);
  context.note(escapeControls(`${url} has no svc.yaml.`));
  const question = escapeControls(`Clone it to ${dir}, and make one there?`);
  if (options.yes !== true && !(await confirm(host, question))) throw error;
  const branch = revision === "" ? [] : ["--branch", revision];
  const words = ["clone", "--quiet", "--depth", "1", ...branch, "--", url, dir];
  const git = spawn("git", words, { stdio: ["inherit", "ignore", "inherit"], env: host.env });
  const [exitCode] = (await once(git, "exit")) as [number | null];
  if (exitCode !== 0) throw new SvcError("git_failed", `git could not clone ${url}: see above`);
  return packageAt(context, dir);
}

/** The daemon names the cause in its sentence alone. */
function lacksManifest(error: unknown): boolean {
  const known = asSvcError(error);
  return known?.reason === "package_invalid" && known.message.startsWith("there is no svc.yaml in ");
}

/** Not a transport helper's `ext::`, which would run a command. */
function isUrl(text: string): boolean {
  return /^(?:https|ssh|file):\/\/[^\s-][^\s]*$/.test(text);
}
