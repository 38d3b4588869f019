/** Searches files by name and by lines of content, in linear time for any pattern (RE2). */
import { createRequire } from "node:module";
import { RequestError } from "../request-error.mjs";
import { describeEntry } from "./entries.mjs";
import { withParent } from "./host-path.mjs";
import { spell } from "./spelling.mjs";
import { openEntry, treeEntries } from "./tree-entries.mjs";

const blockBytes = 256 << 10;
/** A file with a NUL in its first bytes is not text. */
const textBytes = 8 << 10;
/** The rest of a longer line is not searched. */
const maxLineBytes = 16 << 10;
const shownChars = 512;
const newline = 0x0a;

/** @typedef {(line: Buffer) => boolean} LineMatcher */

/**
 * @typedef {object} SearchArgs
 * @property {string} name a pattern; empty for all
 * @property {string} content empty: do not read files
 * @property {boolean} regex
 * @property {boolean} ignoreCase
 * @property {boolean} hidden
 * @property {number} limit
 */

/**
 * @param {import("./syscalls.mjs").Syscalls} syscalls
 * @param {import("./host-path.mjs").GuardedPath & SearchArgs} args
 * @param {(record: object) => Promise<void>} report
 * @param {AbortSignal} signal
 */
export async function searchFiles(syscalls, { hidden, limit, ...args }, report, signal) {
  const matchesName = nameMatcher(args);
  const holds = lineMatcher(args);
  let [entries, matches, failed] = [0, 0, 0];
  const { path, guard } = args;
  await withParent(syscalls, { path, guard }, { follow: true }, async (found) => {
    const options = {
      stays: true,
      fail: () => {
        failed++;
      },
      admits: (/** @type {number} */ parent, /** @type {string} */ name) =>
        (hidden || !name.startsWith(".")) && isAdmitted(found.guard, parent, name),
    };
    for await (const entry of treeEntries(found.parent, found.name, signal, options)) {
      if (entry.isLeft) continue;
      entries++;
      await report({ entries });
      const { parent, name, stats } = entry;
      if (!matchesName(spell(name)) || (entry.path.length === 1 && stats.isDirectory())) continue;
      const where = entry.path.slice(1).map(spell).join("/");
      const match = async (/** @type {object} */ line) => {
        await report({ where, entry: describeEntry(parent, name, stats), ...line });
        return ++matches >= limit;
      };
      try {
        if (
          !holds
            ? await match({})
            : stats.isFile() && (await matchLines(entry, found.guard, holds, match, signal))
        )
          return;
      } catch (error) {
        if (signal.aborted || !(error instanceof Error) || !("code" in error)) throw error;
        failed++;
      }
    }
  });
  await report({ end: { entries, matches, failed, truncated: matches >= limit } });
}

/**
 * @param {import("./guard.mjs").Guard} guard
 * @param {number} parent
 * @param {string} name
 */
function isAdmitted(guard, parent, name) {
  try {
    guard.admitName(parent, name);
    return true;
  } catch {
    return false;
  }
}

/**
 * @param {import("./tree-entries.mjs").TreeEntry} entry
 * @param {import("./guard.mjs").Guard} guard
 * @param {LineMatcher} holds
 * @param {(line: object) => Promise<boolean>} match whether the limit is reached
 * @param {AbortSignal} signal
 */
async function matchLines(entry, guard, holds, match, signal) {
  // A file that reports size 0 is empty, or belongs to the kernel and may block.
  if (entry.stats.size === 0n) return false;
  guard.admit(entry.stats);
  await using file = await openEntry(entry);
  if (file === undefined) return false;
  let line = 0;
  for await (const { bytes, isFirst } of blocks(file, signal)) {
    if (isFirst && bytes.subarray(0, textBytes).includes(0)) return false;
    for (let start = 0; start < bytes.length;) {
      const found = bytes.indexOf(newline, start);
      const end = found < 0 ? bytes.length : found;
      const text = bytes.subarray(start, Math.min(end, start + maxLineBytes));
      line++;
      start = end + 1;
      if (!holds(text)) continue;
      if (await match({ line, text: text.toString().slice(0, shownChars) })) return true;
    }
    signal.throwIfAborted();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return false;
}

/**
 * Yields pieces of a file that end at the end of a line. A line longer than a piece is cut.
 * @param {import("node:fs/promises").FileHandle} file
 * @param {AbortSignal} signal
 */
async function* blocks(file, signal) {
  const buffer = Buffer.allocUnsafe(blockBytes);
  let [carriedBytes, position] = [0, 0];
  for (;;) {
    signal.throwIfAborted();
    const { bytesRead } = await file.read(buffer, carriedBytes, buffer.length - carriedBytes, position);
    const length = carriedBytes + bytesRead;
    const isFirst = position === 0;
    position += bytesRead;
    if (bytesRead === 0) {
      if (carriedBytes > 0) yield { bytes: buffer.subarray(0, carriedBytes), isFirst: false };
      return;
    }
    const last = buffer.lastIndexOf(newline, length - 1);
    const end = last >= 0 && last < length ? last + 1 : length === buffer.length ? length : 0;
    if (end > 0 || isFirst) yield { bytes: buffer.subarray(0, end), isFirst };
    buffer.copyWithin(0, end, length);
    carriedBytes = length - end;
  }
}

/** @returns {typeof import("re2js").RE2JS} */
function loadRe2() {
  return createRequire(import.meta.url)("re2js").RE2JS;
}

/**
 * @param {Pick<SearchArgs, "name" | "ignoreCase">} args
 * @returns {(name: string) => boolean}
 */
function nameMatcher({ name, ignoreCase }) {
  if (name === "") return () => true;
  return compiled(`^(?:${fromGlob(name)})$`, ignoreCase, "name");
}

/**
 * @param {Pick<SearchArgs, "content" | "regex" | "ignoreCase">} args
 * @returns {LineMatcher | undefined}
 */
function lineMatcher({ content, regex, ignoreCase }) {
  if (content === "") return undefined;
  if (!regex && !ignoreCase) {
    const needle = Buffer.from(content);
    return (line) => line.includes(needle);
  }
  const isFound = compiled(regex ? content : loadRe2().quote(content), ignoreCase, "content");
  return (line) => isFound(line.toString());
}

/**
 * @param {string} pattern
 * @param {boolean} ignoreCase
 * @param {string} field
 * @returns {(text: string) => boolean}
 */
function compiled(pattern, ignoreCase, field) {
  const RE2JS = loadRe2();
  try {
    const matcher = RE2JS.compile(pattern, RE2JS.DOTALL | (ignoreCase ? RE2JS.CASE_INSENSITIVE : 0));
    return (text) => matcher.test(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new RequestError("INVALID", `cannot be searched: ${field} is not a valid pattern: ${why}`);
  }
}

/** @param {string} pattern */
function fromGlob(pattern) {
  const RE2JS = loadRe2();
  return pattern.replaceAll(/\*+|\?|\[[!^]?[^\]]+\]|[^*?[]+|\[/g, (part) => {
    if (part.startsWith("*")) return ".*";
    if (part === "?") return ".";
    if (part.length > 2 && part.startsWith("[")) {
      const isNegated = part[1] === "!" || part[1] === "^";
      const chars = part.slice(isNegated ? 2 : 1, -1).replaceAll(/[\\^[\]]/g, String.raw`\$&`);
      return `[${isNegated ? "^" : ""}${chars}]`;
    }
    return RE2JS.quote(part);
  });
}
