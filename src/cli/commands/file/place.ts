/** Paths as command lines name them: absolute ones, and `APP:PATH` for what lies in an app's directory. */
import { posix } from "node:path";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../failure.ts";
import { calls } from "../../transport/calls.ts";

export const pathHelp = "an absolute path, or APP:PATH in an app's directory";

/** @throws UsageError for what is neither */
export async function resolvePlace(context: CommandContext, text: string): Promise<string> {
  if (text.startsWith("/")) return text;
  const [, id, path] = /^([^:/]+):(.*)$/s.exec(text) ?? [];
  if (id === undefined || path === undefined) {
    throw new UsageError(`${JSON.stringify(text)} is neither an absolute path nor APP:PATH`);
  }
  const { directory } = await context.call(calls.getApp, { id });
  // Not posix.join, which would take ".." out of it before the daemon can refuse it.
  return path === "" ? directory : `${directory}/${path.replace(/^\/+/, "")}`;
}

/** Where a thing goes: into a directory when the place ends in a slash, under the name that it has. */
export async function resolveTarget(context: CommandContext, text: string, name: string): Promise<string> {
  const path = await resolvePlace(context, text);
  return path.endsWith("/") || text.endsWith(":") ? posix.join(path, name) : path;
}
