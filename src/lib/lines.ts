/** Lines that come from somebody who may send anything: bounded, each looked at once, and read in turns. */

export interface LinesOptions {
  /** Longest line, in UTF-16 units; a longer one ends the reading. */
  readonly maxLength: number;
  /** Undefined when a line may be given out now, else a promise for when it may. */
  readonly turn: () => Promise<void> | undefined;
}

/** The lines of a text that comes in pieces, without their ends; what follows the last end is left out. */
export async function* boundedLines(
  pieces: AsyncIterable<string>,
  { maxLength, turn }: LinesOptions,
): AsyncGenerator<string, void> {
  // Kept apart: joined anew with each piece, a long line would be read as often as it has pieces.
  let begun: string[] = [];
  let length = 0;
  for await (const piece of pieces) {
    let start = 0;
    for (let end = piece.indexOf("\n"); end >= 0; end = piece.indexOf("\n", start)) {
      if (length + end - start > maxLength) return;
      const line = begun.join("") + piece.slice(start, end);
      start = end + 1;
      begun = [];
      length = 0;
      await turn();
      yield line;
    }
    begun.push(piece.slice(start));
    length += piece.length - start;
    if (length > maxLength) return;
  }
}
