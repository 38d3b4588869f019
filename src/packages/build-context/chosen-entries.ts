/** Chooses the entries of a build context that `.dockerignore` does not exclude. */
import { posix } from "node:path";
import { readIgnorePatterns, type PatternMatches } from "./ignore-patterns.ts";

export interface EntryChoice {
  /** Paths, each directory before its contents and with a `/` at its end. Each path ends with a NUL. One character per byte. */
  readonly paths: string;
  /** The text of `.dockerignore`; one character per byte. */
  readonly ignoreText: string;
  /** Chooses also the directories above the chosen entries, and orders all by name, with a directory's contents right after it. */
  readonly withDirectories: boolean;
}

/**
 * The numbers of the chosen entries. The work grows with the product of paths and patterns, so this runs in a thread.
 * @throws RangeError when there are too many or too long patterns
 */
export function chooseEntries({ paths, ignoreText, withDirectories }: EntryChoice): Uint32Array {
  const patterns = readIgnorePatterns(ignoreText);
  const all = paths.split("\0").slice(0, -1);
  const names = all.map((path) => (path.endsWith("/") ? path.slice(0, -1) : path));
  const directories = new Map<string, PatternMatches>();
  const chosen = new Set<string>();
  for (const [number, name] of names.entries()) {
    const result = patterns.match(name, directories.get(posix.dirname(name)));
    if (all[number] !== name) directories.set(name, result);
    if (result.isIgnored) continue;
    chosen.add(name);
    if (!withDirectories) continue;
    for (let above = posix.dirname(name); above !== "." && !chosen.has(above); above = posix.dirname(above))
      chosen.add(above);
  }
  const numbers = [...names.keys()].filter((number) => chosen.has(names[number] ?? ""));
  if (!withDirectories) return Uint32Array.from(numbers);
  // No name contains a NUL, so that the contents of a directory follow it.
  const keys = new Map(numbers.map((number) => [number, (names[number] ?? "").replaceAll("/", "\0")]));
  return Uint32Array.from(numbers.toSorted((a, b) => ((keys.get(a) ?? "") < (keys.get(b) ?? "") ? -1 : 1)));
}
