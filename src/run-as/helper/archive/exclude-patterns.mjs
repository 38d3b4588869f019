/** Patterns of tar(1) with `--anchored --wildcards`: `*` and `?` also match slashes. */
import { toLatin1 } from "../directory.mjs";

/**
 * Returns a function that tells whether a path, or a directory above it, is excluded.
 * @param {string[]} patterns
 * @returns {(path: string) => boolean} takes paths of one character per byte
 */
export function excluder(patterns) {
  const rules = patterns.map(toRule);
  return (path) => rules.some((rule) => rule.test(path));
}

/** @param {string} pattern */
function toRule(pattern) {
  const source = toLatin1(pattern).replaceAll(/\*+|\?|\[[^\]]+\]|[\s\S]/g, (part) => {
    if (part.startsWith("*")) return "[^]*?";
    if (part === "?") return "[^]";
    if (part.length > 1) return part.replaceAll("\\", "\\\\").replace(/^\[!/, "[^");
    return part.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);
  });
  return new RegExp(`^${source}(?:/|$)`);
}
