/** Patterns as tar(1) takes them with `--anchored --wildcards`: `*` and `?` stand for slashes, too. */
import { toLatin1 } from "../directory.mjs";

/**
 * Whether a path, or a directory above it, is left out.
 * @param {string[]} patterns
 * @returns {(path: string) => boolean} Takes paths of one character per byte.
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
