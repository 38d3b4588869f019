/** Paths on the command line: absolute paths, and `APP:PATH` for paths in an app's directory. */
import { posix } from "node:path";
import type { CommandContext } from "../../context.ts";
import type { Advice } from "../../output/advice.ts";
import { UsageError } from "../../output/failure.ts";
import { calls } from "../../client/calls.ts";
import { exists } from "../../exists.ts";

export const pathHelp = "an absolute path, or APP:PATH in an app's directory";

/** @throws UsageError for any other text */
export async function resolvePath(context: CommandContext, text: string): Promise<string> {
  if (text.startsWith("/")) return text;
  const [, id, path] = /^([^:/]+):(.*)$/s.exec(text) ?? [];
  if (id === undefined || path === undefined) {
    throw new UsageError(`${JSON.stringify(text)} is neither an absolute path nor APP:PATH${adviceOn(text)}`);
  }
  const { directory } = await context.call(calls.getApp, { id });
  // Not posix.join, which would resolve ".." before the daemon can reject it.
  return path === "" ? directory : `${directory}/${path.replace(/^\/+/, "")}`;
}

function adviceOn(text: string): string {
  if (exists(text)) return ", such as hello:data; to copy a file of this directory to the host: svc file put";
  return /^[\w-]+$/.test(text) ? `; for the directory of an app: ${text}:` : ", such as hello:data";
}

/** Whether the text is neither kind of path, but one in the current directory. */
export function isLocal(text: string): boolean {
  return !text.startsWith("/") && !/^[^:/]+:/.test(text) && exists(text);
}

/** The target path: if it ends in a slash, `name` in that directory. */
export async function resolveTarget(context: CommandContext, text: string, name: string): Promise<string> {
  const path = await resolvePath(context, text);
  return path.endsWith("/") || text.endsWith(":") ? posix.join(path, name) : path;
}

/** The next step when a target already exists, for commands with `--force`. */
export const adviceOnForce: Advice = ({ reason }) =>
  reason === "already_exists" ? "overwrite it with --force" : undefined;
