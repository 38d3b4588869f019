import { resolve } from "node:path";

/** A path is named to the daemon, which has another working directory, as an absolute one; anything else stays as it is. */
export function absoluteIfPath(text: string): string {
  const isPath = /^\.{0,2}\//.test(text) || text === "." || text === "..";
  return isPath ? resolve(text) : text;
}
