/**
 * The instructions of a Dockerfile as the engine's own parser tells them apart. What engines read differently, or otherwise
 * than it looks, is refused: an instruction that was not seen here could name the image of somebody else (threat 55).
 */
import { SvcError } from "../../errors.ts";

export interface Instruction {
  /** In capitals. */
  readonly word: string;
  readonly flags: readonly string[];
  readonly rest: string;
  /** From 1: where it begins. */
  readonly line: number;
  /** Where it ends. */
  readonly lastLine: number;
}

/** What separates words; other white space is part of them to one parser, and none to another. */
const blanks = /[\t\v\f\r ]+/;
const oddSpace = String.raw`(?:[^\S\t\r\n ]|\u0085)`;
const startsOdd = new RegExp(`^[\\t\\r ]*${oddSpace}`);
const endsOdd = new RegExp(`${oddSpace}[\\t\\r ]*$`);
/** What may begin a here-document: those need BuildKit, and the lines of one are no instructions. */
const hereDocument = /(?:^|[\s\u0085}])\d*<<(?!<)-?\S/;

/** @throws SvcError `denied` about what cannot be told for sure */
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
    yield* instruction(begun.text, { line: at, lastLine: index + 1 });
    begun = undefined;
  }
  if (begun !== undefined) yield* instruction(begun.text, { line: begun.line, lastLine: lines.length });
}

/** What continues lines: a backslash, or a backtick where the very first line says so. */
function escapeOf(lines: readonly string[]): string {
  if (/^#[\t ]*escape[\t ]*=[\t ]*`[\t\r ]*$/i.test(lines[0] ?? "")) return "`";
  const firstOther = lines.findIndex((line) => !/^\s*(?:#|$)/.test(line));
  const comments = firstOther === -1 ? lines : lines.slice(0, firstOther);
  const stray = comments.findIndex((line) =>
    /^[\s\u0085]*#[\s\u0085]*escape[\s\u0085]*=[\s\u0085]*`/i.test(line),
  );
  if (stray !== -1) throw unclear(stray + 1, "says escape, which counts on the first line alone");
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
  place: Pick<Instruction, "line" | "lastLine">,
): Generator<Instruction, void> {
  const { line } = place;
  if (startsOdd.test(text) || endsOdd.test(text))
    throw unclear(line, "begins or ends with white space that is neither a space nor a tab");
  const [first = "", ...tokens] = text.split(blanks).filter((token) => token !== "");
  const word = first.toUpperCase();
  if (word === "ONBUILD") {
    yield* instruction(tokens.join(" "), place);
    return;
  }
  if (["RUN", "COPY", "ADD"].includes(word) && hereDocument.test(text))
    throw unclear(line, "has what may be a here-document, which needs BuildKit");
  const firstPlain = tokens.findIndex((token) => !token.startsWith("--"));
  const at = firstPlain === -1 ? tokens.length : firstPlain;
  const flags = tokens.slice(0, at);
  // Quotes and escapes in it are taken away, and bytes of letters that are not ASCII taken for spaces.
  const odd = flags.find((flag) => !/^[!-~]+$/.test(flag) || /["'\\`]/.test(flag));
  if (odd !== undefined) throw unclear(line, `has the flag ${odd}: write it plainly`);
  yield { word, flags, rest: tokens.slice(at).join(" "), ...place };
}

/** @returns `denied`: it may hide the name of an image */
export function unclear(line: number, what: string): SvcError<"denied"> {
  return new SvcError("denied", `line ${line}: it ${what}, and svc cannot tell what the engine makes of it`);
}
