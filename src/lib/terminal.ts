/** A program at a terminal, as whoever shows it sees it. */

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** Of a terminal whose window nobody has said. */
export const defaultTerminalSize: TerminalSize = { columns: 80, rows: 24 };

/** Bytes, cut anywhere; or how many were left out, as this reader was too slow for a terminal that others watch too. */
export type TerminalPiece =
  | {
      readonly data: Buffer;
      /** Standard error, of a program that has no terminal. */
      readonly isError?: boolean;
    }
  | { readonly missedBytes: number };

/** Disposing of it hangs up: what runs there is told as a closed window tells it. One that others share goes on. */
export interface Terminal extends AsyncDisposable {
  /** What it shows; ends after the program has. Read once, at the speed of who reads. */
  readonly output: AsyncIterable<TerminalPiece>;
  /** Of the program, 128 and more for a signal's. Resolves once {@link output} has ended. */
  readonly exitCode: Promise<number>;
  /** Types bytes; resolves when they are taken. What is typed after the end is lost. */
  write(bytes: Uint8Array): Promise<void>;
  /** Nothing more is typed. */
  endInput(): Promise<void>;
  resize(size: TerminalSize): void;
}
