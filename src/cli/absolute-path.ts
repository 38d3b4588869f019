import { resolve } from "node:path";
import type { CommandContext } from "./context.ts";
import { UsageError } from "./failure.ts";
import { chooseNode } from "./nodes/choose-node.ts";

/**
 * A path is named to the daemon, which has another working directory, as an absolute one; anything else stays as it is.
 * @throws UsageError for a relative path where the daemon has other files
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
      `${text} lies on this machine, and ${node.name} reads its own files: name an absolute path there`,
    );
  }
  return resolve(text);
}
