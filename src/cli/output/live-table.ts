/** A table that is updated: redrawn in place on a terminal, printed again elsewhere. */
export class LiveTable {
  readonly #isTerminal: boolean;
  #shownLines = 0;

  constructor(isTerminal: boolean) {
    this.#isTerminal = isTerminal;
  }

  /** The output that replaces the previous table. */
  next(table: string): string {
    if (!this.#isTerminal) return `${table}\n`;
    // Moves the cursor to the start of the last table and clears everything below.
    const back = this.#shownLines > 0 ? `\x1b[${this.#shownLines}A\x1b[J` : "";
    this.#shownLines = table.split("\n").length - 1;
    return back + table;
  }
}
