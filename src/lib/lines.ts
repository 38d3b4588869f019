/** Lines that come from somebody who may send anything: bounded, each looked at once, and read in turns. */

export interface LinesOptions {
  /** Longest line, in UTF-16 units; a longer one ends the reading, or is left out. */
  readonly maxLength: number;
  readonly leavesOutLong?: boolean;
  /** Undefined when a line may be given out now, else a promise for when it may. */
  readonly turn: () => Promise<void> | undefined;
}

/** The lines of a text that comes in pieces, without their ends; what follows the last end is left out. */
export async function* boundedLines(
  pieces: AsyncIterable<string>,
  { maxLength, turn, leavesOutLong = false }: LinesOptions,
): AsyncGenerator<string, void> {
  // Kept apart: joined anew with each piece, a long line would be read as often as it has pieces.
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
