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
    const line = withoutEnd(raw, "\r");
    if (/^[\t\r ]*(?:#|$)/.test(line)) continue;
    if (startsOdd.test(line))
      throw unclear(index + 1, "begins with white space that is neither a space nor a tab");
    const at = begun?.line ?? index + 1;
    const { content, escapes } = withoutEscapes(line, escape);
    if (escapes > 1) throw unclear(index + 1, `ends in more than one ${escape}`);
    begun = { text: (begun?.text ?? "") + content, line: at };
    if (escapes === 1) continue;
    yield* checked({ text: begun.text, line: at, lastLine: index + 1 });
    begun = undefined;
  }
  if (begun !== undefined) yield* checked({ ...begun, lastLine: lines.length });
}

/**
 * The instructions as BuildKit reads them. Unclear text is not rejected, because BuildKit checks it. Lines of
 * here-documents are not instructions.
 */
export function* readBuildKitInstructions(text: string): Generator<Instruction, void> {
  const lines = text.replace(/^\uFEFF/, "").split("\n");
  const escape = /^#[\t ]*escape[\t ]*=[\t ]*`/im.test(text) ? "`" : "\\";
  let begun: { text: string; line: number } | undefined;
  for (let index = 0; index < lines.length; index++) {
    const line = withoutEnd(lines[index] ?? "", "\r");
    if (/^\s*(?:#|$)/.test(line)) continue;
    const { content, escapes } = withoutEscapes(line, escape);
    begun = { text: (begun?.text ?? "") + content, line: begun?.line ?? index + 1 };
    if (escapes % 2 === 1) continue;
    const ends = takesDocuments.test(begun.text) ? endsOfDocuments(begun.text) : [];
    for (const end of ends) {
      do index++;
      while (index < lines.length && withoutEnd((lines[index] ?? "").replace(/^\t+/, ""), "\r") !== end);
    }
    yield* instruction(begun.text, { ...begun, lastLine: Math.min(index + 1, lines.length) });
    begun = undefined;
  }
  if (begun !== undefined) yield* instruction(begun.text, { ...begun, lastLine: lines.length });
}

const takesDocuments = /^\s*(?:ONBUILD\s+)?(?:RUN|COPY|ADD)\s/i;

/** The words that end the here-documents of an instruction. */
function endsOfDocuments(text: string): string[] {
  return [...text.matchAll(/(?:^|[\s\d])<<-?(["']?)([A-Za-z0-9._-]+)\1/g)].map(([, , word = ""]) => word);
}

/** @throws SvcError `denied` */
function* checked(source: Pick<Instruction, "text" | "line" | "lastLine">): Generator<Instruction, void> {
  const { text, line } = source;
  const triggered = text.replace(/^[\t\v\f\r ]*(?:ONBUILD[\t\v\f\r ]+)*/i, "");
  if ([text, triggered].some((part) => startsOdd.test(part)) || endsOdd.test(text))
    throw unclear(line, "begins or ends with white space that is neither a space nor a tab");
  for (const read of instruction(text, source)) {
    if (["RUN", "COPY", "ADD"].includes(read.word) && hereDocument.test(text))
      throw unclear(line, "may start a here-document, which requires BuildKit");
    // The engine removes quotes and escapes in flags, and treats bytes of non-ASCII letters as spaces.
    const odd = read.flags.find((flag) => !/^[!-~]+$/.test(flag) || /["'\\`]/.test(flag));
    if (odd !== undefined)
      throw unclear(line, `has the flag ${odd} with quotes, escapes or non-ASCII characters`);
    yield read;
  }
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

/** A pattern would try each start of a long run, which takes minutes for a text that is allowed. */
function withoutEnd(line: string, characters: string): string {
  let end = line.length;
  while (end > 0 && characters.includes(line.charAt(end - 1))) end -= 1;
  return line.slice(0, end);
}

function withoutEscapes(line: string, escape: string): { content: string; escapes: number } {
  const trimmed = withoutEnd(line, "\t ");
  let end = trimmed.length;
  while (end > 0 && trimmed[end - 1] === escape) end -= 1;
  const escapes = trimmed.length - end;
  return { content: escapes === 0 ? line : trimmed.slice(0, end), escapes };
}

function* instruction(
  text: string,
  source: Pick<Instruction, "text" | "line" | "lastLine">,
): Generator<Instruction, void> {
  const words = text.split(blanks).filter((token) => token !== "");
  const triggers = words.findIndex((token) => token.toUpperCase() !== "ONBUILD");
  const isTrigger = triggers !== 0;
  const [first = "", ...tokens] = triggers === -1 ? [] : words.slice(triggers);
  const word = first.toUpperCase();
  const firstPlain = tokens.findIndex((token) => !token.startsWith("--"));
  const at = firstPlain === -1 ? tokens.length : firstPlain;
  yield { word, isTrigger, flags: tokens.slice(0, at), rest: tokens.slice(at).join(" "), ...source };
}

/** @returns `denied`: the line may hide an image name */
export function unclear(line: number, what: string): SvcError<"denied"> {
  return new SvcError("denied", `line ${line} ${what}, so svc cannot determine how the engine reads it`);
}
