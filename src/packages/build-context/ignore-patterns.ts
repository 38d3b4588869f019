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
  readonly parts: readonly PatternPart[];
  readonly isException: boolean;
}

interface PatternPart {
  readonly tokens: readonly string[];
  /** The text before the first wildcard, and after the last one. */
  readonly prefix: string;
  readonly suffix: string;
  /** Whether `prefix` is the whole part. */
  readonly isPlain: boolean;
}

interface PathPart {
  readonly text: string;
  /** Split when a pattern first needs them. */
  chars?: readonly string[];
}

const maxPatterns = 500;
const maxPatternLength = 1024;

/** @throws RangeError when there are too many or too long patterns */
export function readIgnorePatterns(text: string): IgnorePatterns {
  const lines = text
    .replace(/^\uFEFF/, "")
    .split("\n")
    .map((line) => (line.startsWith("#") ? "" : line.trim()))
    .filter((line) => line !== "");
  if (lines.some((line) => line.length > maxPatternLength))
    throw new RangeError(`.dockerignore has a pattern of more than ${maxPatternLength} characters`);
  const patterns = lines.map(readPattern).filter(({ parts }) => parts.length > 0);
  if (patterns.length > maxPatterns) {
    throw new RangeError(`.dockerignore has more than ${maxPatterns} patterns`);
  }
  return {
    match(path, above) {
      const parts = path.split("/").map((text): PathPart => ({ text }));
      const matched = new Uint8Array(patterns.length);
      let isIgnored = false;
      // An iterator takes nearly twice as long, and this runs up to 50 million times.
      for (let index = 0; index < patterns.length; index++) {
        const pattern = patterns[index] as Pattern;
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
  return { parts: parts.map(readPart), isException };
}

function readPart(text: string): PatternPart {
  const tokens = readTokens(text);
  const first = tokens.findIndex(isWildcard);
  if (first === -1) return { tokens, prefix: tokens.map(charOf).join(""), suffix: "", isPlain: true };
  const last = tokens.findLastIndex(isWildcard);
  const [prefix = "", suffix = ""] = [tokens.slice(0, first), tokens.slice(last + 1)].map((plain) =>
    plain.map(charOf).join(""),
  );
  return { tokens, prefix, suffix, isPlain: false };
}

/**
 * `**` stands for any number of parts. Backtracks only to the last `**`, so the work is at most the product of both
 * lengths.
 */
function matchesParts(pattern: Pattern["parts"], path: readonly PathPart[]): boolean {
  const [last, name] = [pattern[pattern.length - 1], path[path.length - 1]];
  // Most patterns already differ in the last part.
  if (last !== undefined && name !== undefined && !isAnyPath(last) && !matchesPart(last, name)) return false;
  return matchSequence(pattern, path, isAnyPath, matchesPart);
}

function isAnyPath({ tokens }: PatternPart): boolean {
  return tokens.length === 1 && tokens[0] === "**";
}

/** Matches `*`, `?`, `[a-z]` and `\` within one part. */
function matchesPart({ tokens, prefix, suffix, isPlain }: PatternPart, name: PathPart): boolean {
  if (isPlain) return name.text === prefix;
  if (!name.text.startsWith(prefix) || !name.text.endsWith(suffix)) return false;
  const chars = (name.chars ??= Array.from(name.text));
  return matchSequence(tokens, chars, (token) => token === "*" || token === "**", matchesChar);
}

function matchSequence<P, I>(
  pattern: readonly P[],
  items: readonly I[],
  isWild: (element: P) => boolean,
  matches: (element: P, item: I) => boolean,
): boolean {
  let at = 0;
  let resume: { pattern: number; item: number } | undefined;
  for (let item = 0; item < items.length;) {
    const element = pattern[at];
    if (element !== undefined && isWild(element)) {
      resume = { pattern: at, item };
      at++;
    } else if (element !== undefined && matches(element, items[item] as I)) {
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

/** One token per matched character. Repeated `*` become one, except `**`. */
function readTokens(pattern: string): string[] {
  return (
    pattern
      .match(/\\.|\[(?:\\.|[^\]\\]){1,128}\]|\*+|[^]/gu)
      ?.map((token) => (/^\*+$/.test(token) && token !== "**" ? "*" : token)) ?? []
  );
}

function isClass(token: string): boolean {
  return token.length > 2 && token.startsWith("[");
}

function isWildcard(token: string): boolean {
  return token === "*" || token === "**" || token === "?" || isClass(token);
}

/** The character of a token that is not a wildcard. */
function charOf(token: string): string {
  return token.length === 2 && token.startsWith("\\") ? token.slice(1) : token;
}

function matchesChar(token: string, char: string): boolean {
  if (token === "?") return true;
  return isClass(token) ? isInClass(token.slice(1, -1), char) : charOf(token) === char;
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
