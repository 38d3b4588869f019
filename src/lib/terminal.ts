/** A program at a terminal, as whoever shows it sees it. */

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** Disposing of it hangs up: what runs there is told as a closed window tells it. */
export interface Terminal extends AsyncDisposable {
  /** What the terminal shows, cut anywhere; ends after the program has. Read once, at the speed of who reads. */
  readonly output: AsyncIterable<Buffer>;
  /** Of the program, 128 and more for a signal's. Resolves once {@link output} has ended. */
  readonly exitCode: Promise<number>;
  /** Types bytes; resolves when they are taken. What is typed after the end is lost. */
  write(bytes: Uint8Array): Promise<void>;
  resize(size: TerminalSize): void;
}
