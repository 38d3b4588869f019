/**
 * Matches the patterns of a `.dockerignore` (docs.docker.com, "Dockerignore file") without regular expressions:
 * patterns and names are untrusted, and must not block the event loop.
 */

export interface IgnorePatterns {
  /** Which patterns match `path`, relative with `/` as separator; `above` is the result for its directory. */
  match(path: string, above?: PatternMatches): PatternMatches;
}

export interface PatternMatches {
  readonly isIgnored: boolean;
  /** By pattern. */
  readonly matched: Uint8Array;
}

interface Pattern {
  readonly parts: readonly string[];
  readonly isException: boolean;
}

const maxPatterns = 500;
const maxPatternLength = 1024;

/** @throws RangeError when there are too many or too long patterns */
export function readIgnorePatterns(text: string): IgnorePatterns {
  const patterns = text
    .replace(/^\uFEFF/, "")
    .split("\n")
    .map((line) => (line.startsWith("#") ? "" : line.trim()))
    .filter((line) => line !== "")
    .map(readPattern)
    .filter(({ parts }) => parts.length > 0);
  if (patterns.length > maxPatterns || text.length > maxPatterns * maxPatternLength) {
    throw new RangeError(`.dockerignore has more than ${maxPatterns} patterns`);
  }
  return {
    match(path, above) {
      const parts = path.split("/");
      const matched = new Uint8Array(patterns.length);
      let isIgnored = false;
      for (const [index, pattern] of patterns.entries()) {
        // A pattern that matches a directory matches its contents.
        const isMatch = above?.matched[index] === 1 || matchesParts(pattern.parts, parts);
        if (!isMatch) continue;
        matched[index] = 1;
        isIgnored = !pattern.isException;
      }
      return { isIgnored, matched };
    },
  };
}

function readPattern(line: string): Pattern {
  const isException = line.startsWith("!");
  const parts: string[] = [];
  for (const part of (isException ? line.slice(1).trim() : line).split("/")) {
    if (part === "" || part === ".") continue;
    if (part === "..") parts.pop();
    else parts.push(part);
  }
  return { parts, isException };
}

/**
 * `**` stands for any number of parts. Backtracks only to the last `**`, so the work is at most the product of both
 * lengths.
 */
function matchesParts(pattern: readonly string[], path: readonly string[]): boolean {
  return matchSequence(
    pattern,
    path,
    (part) => part === "**",
    (part, name) => matchesPart(part, name),
  );
}

/** Matches `*`, `?`, `[a-z]` and `\` within one part. */
function matchesPart(pattern: string, name: string): boolean {
  return matchSequence(
    readTokens(pattern),
    Array.from(name),
    (token) => token === "*",
    (token, char) => matchesChar(token, char),
  );
}

function matchSequence<P>(
  pattern: readonly P[],
  items: readonly string[],
  isWild: (element: P) => boolean,
  matches: (element: P, item: string) => boolean,
): boolean {
  let at = 0;
  let resume: { pattern: number; item: number } | undefined;
  for (let item = 0; item < items.length;) {
    const element = pattern[at];
    if (element !== undefined && isWild(element)) {
      resume = { pattern: at, item };
      at++;
    } else if (element !== undefined && matches(element, items[item] ?? "")) {
      at++;
      item++;
    } else if (resume !== undefined) {
      resume.item++;
      at = resume.pattern + 1;
      ({ item } = resume);
    } else return false;
  }
  return pattern.slice(at).every(isWild);
}

/** One token per matched character; repeated `*` become one. */
function readTokens(pattern: string): string[] {
  return (
    pattern
      .match(/\\.|\[(?:\\.|[^\]\\])+\]|\*+|[^]/gu)
      ?.map((token) => (/^\*+$/.test(token) ? "*" : token)) ?? []
  );
}

function matchesChar(token: string, char: string): boolean {
  if (token === "?") return true;
  if (token.length > 2 && token.startsWith("[")) return isInClass(token.slice(1, -1), char);
  return (token.length === 2 && token.startsWith("\\") ? token.slice(1) : token) === char;
}

function isInClass(content: string, char: string): boolean {
  const isNegated = content.startsWith("^");
  const chars = Array.from(isNegated ? content.slice(1) : content);
  let isIn = false;
  for (let index = 0; index < chars.length; index++) {
    const low = chars[index] ?? "";
    const high = chars[index + 1] === "-" ? chars[index + 2] : undefined;
    if (high !== undefined) index += 2;
    if (char >= low && char <= (high ?? low)) isIn = true;
  }
  return isIn !== isNegated;
}
