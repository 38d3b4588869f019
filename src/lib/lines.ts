/**
 * Splits untrusted input into lines: their length is limited, each character is scanned once, and users are
 * served round-robin.
 */

export interface LinesOptions {
  /** Longest line in UTF-16 units. A longer line ends the reading, or is skipped. */
  readonly maxLength: number;
  readonly leavesOutLong?: boolean;
  /** Returns undefined if a line may be yielded now, else a promise for when it may. */
  readonly turn: () => Promise<void> | undefined;
}

/** Yields the lines of a text that arrives in pieces, without line ends. An unterminated last line is dropped. */
export async function* boundedLines(
  pieces: AsyncIterable<string>,
  { maxLength, turn, leavesOutLong = false }: LinesOptions,
): AsyncGenerator<string, void> {
  // Collected, not concatenated: otherwise a long line would be copied with each piece.
  let begun: string[] = [];
  let length = 0;
  for await (const piece of pieces) {
    let start = 0;
    for (let end = piece.indexOf("\n"); end >= 0; end = piece.indexOf("\n", start)) {
      const isLong = length + end - start > maxLength;
      if (isLong && !leavesOutLong) return;
      const line = isLong ? undefined : begun.join("") + piece.slice(start, end);
      start = end + 1;
      begun = [];
      length = 0;
      if (line === undefined) continue;
      await turn();
      yield line;
    }
    length += piece.length - start;
    if (length <= maxLength) begun.push(piece.slice(start));
    else if (leavesOutLong) begun = [];
    else return;
  }
}
