/** A table that is shown again and again: in its place on a terminal, one below the other elsewhere. */
export class LiveTable {
  readonly #isTerminal: boolean;
  #shownLines = 0;

  constructor(isTerminal: boolean) {
    this.#isTerminal = isTerminal;
  }

  /** What shows `table` instead of the one before. */
  next(table: string): string {
    if (!this.#isTerminal) return `${table}\n`;
    // Up to where the last table began, and everything below away.
    const back = this.#shownLines > 0 ? `\x1b[${this.#shownLines}A\x1b[J` : "";
    this.#shownLines = table.split("\n").length - 1;
    return back + table;
  }
}
