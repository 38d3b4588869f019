/**
 * Splits a Dockerfile into instructions like the engine's own parser. Text that engines parse differently, or other
 * than it looks, is rejected: an instruction that is not recognized here could use an image of another user.
 */
import { SvcError } from "../../errors.ts";

export interface Instruction {
  /** In upper case. */
  readonly word: string;
  /** Whether it follows ONBUILD. */
  readonly isTrigger: boolean;
  readonly flags: readonly string[];
  readonly rest: string;
  /** The whole instruction on one line, ONBUILD included, with its white space. */
  readonly text: string;
  /** First line, from 1. */
  readonly line: number;
  /** Last line. */
  readonly lastLine: number;
}

/** Separators of words; parsers disagree about other white space. */
const blanks = /[\t\v\f\r ]+/;
const oddSpace = String.raw`(?:[^\S\t\r\n ]|\u0085)`;
const startsOdd = new RegExp(`^[\\t\\r ]*${oddSpace}`);
const endsOdd = new RegExp(`${oddSpace}[\\t\\r ]*$`);
/** May start a here-document, which requires BuildKit, and whose lines are not instructions. */
const hereDocument = /(?:^|[\s\u0085}])\d*<<(?!<)-?\S/;

/** @throws SvcError `denied` for text with an unclear meaning */
export function* readInstructions(text: string): Generator<Instruction, void> {
  const lines = text.replace(/^\uFEFF/, "").split("\n");
  const escape = escapeOf(lines);
  let begun: { text: string; line: number } | undefined;
  for (const [index, raw] of lines.entries()) {
    const line = raw.replace(/\r+$/, "");
    if (/^[\t\r ]*(?:#|$)/.test(line)) continue;
    if (startsOdd.test(line))
      throw unclear(index + 1, "begins with white space that is neither a space nor a tab");
    const at = begun?.line ?? index + 1;
    const { content, escapes } = withoutEscapes(line, escape);
    if (escapes > 1) throw unclear(index + 1, `ends in more than one ${escape}`);
    begun = { text: (begun?.text ?? "") + content, line: at };
    if (escapes === 1) continue;
    yield* instruction(begun.text, { text: begun.text, line: at, lastLine: index + 1 });
    begun = undefined;
  }
  if (begun !== undefined) yield* instruction(begun.text, { ...begun, lastLine: lines.length });
}

/** The escape character: a backslash, or a backtick if the first line sets it. */
function escapeOf(lines: readonly string[]): string {
  if (/^#[\t ]*escape[\t ]*=[\t ]*`[\t\r ]*$/i.test(lines[0] ?? "")) return "`";
  const firstOther = lines.findIndex((line) => !/^\s*(?:#|$)/.test(line));
  const comments = firstOther === -1 ? lines : lines.slice(0, firstOther);
  const stray = comments.findIndex((line) =>
    /^[\s\u0085]*#[\s\u0085]*escape[\s\u0085]*=[\s\u0085]*`/i.test(line),
  );
  if (stray !== -1) throw unclear(stray + 1, "sets escape, which is effective only on the first line");
  return "\\";
}

function withoutEscapes(line: string, escape: string): { content: string; escapes: number } {
  const trimmed = line.replace(/[\t ]+$/, "");
  let end = trimmed.length;
  while (end > 0 && trimmed[end - 1] === escape) end -= 1;
  const escapes = trimmed.length - end;
  return { content: escapes === 0 ? line : trimmed.slice(0, end), escapes };
}

function* instruction(
  text: string,
  source: Pick<Instruction, "text" | "line" | "lastLine">,
  isTrigger = false,
): Generator<Instruction, void> {
  const { line } = source;
  if (startsOdd.test(text) || endsOdd.test(text))
    throw unclear(line, "begins or ends with white space that is neither a space nor a tab");
  const [first = "", ...tokens] = text.split(blanks).filter((token) => token !== "");
  const word = first.toUpperCase();
  if (word === "ONBUILD") {
    yield* instruction(tokens.join(" "), source, true);
    return;
  }
  if (["RUN", "COPY", "ADD"].includes(word) && hereDocument.test(text))
    throw unclear(line, "may start a here-document, which requires BuildKit");
  const firstPlain = tokens.findIndex((token) => !token.startsWith("--"));
  const at = firstPlain === -1 ? tokens.length : firstPlain;
  const flags = tokens.slice(0, at);
  // The engine removes quotes and escapes in flags, and treats bytes of non-ASCII letters as spaces.
  const odd = flags.find((flag) => !/^[!-~]+$/.test(flag) || /["'\\`]/.test(flag));
  if (odd !== undefined)
    throw unclear(line, `has the flag ${odd} with quotes, escapes or non-ASCII characters`);
  yield { word, isTrigger, flags, rest: tokens.slice(at).join(" "), ...source };
}

/** @returns `denied`: the line may hide an image name */
export function unclear(line: number, what: string): SvcError<"denied"> {
  return new SvcError("denied", `line ${line} ${what}, so svc cannot determine how the engine reads it`);
}
