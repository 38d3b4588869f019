import { resolve } from "node:path";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { chooseNode } from "../nodes/choose-node.ts";

/**
 * Makes a path absolute, since the daemon has another working directory. Other text stays unchanged.
 * @throws UsageError for a relative path if the daemon is on another host
 */
export function absoluteIfPath(
  { host, options }: Pick<CommandContext, "host" | "options">,
  text: string,
): string {
  const isPath = /^\.{0,2}\//.test(text) || text === "." || text === "..";
  if (!isPath) return text;
  if (text.startsWith("/")) return resolve(text);
  const node = chooseNode(host, options);
  if (node !== undefined && !node.address.startsWith("unix:")) {
    throw new UsageError(
      `${text} is a path on this machine, but ${node.name} reads its own files: use an absolute path on ${node.name}`,
    );
  }
  return resolve(text);
}
