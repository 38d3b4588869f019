/** A program in a terminal, as seen by a client that shows it. */

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** The size of a terminal whose client did not set one. */
export const defaultTerminalSize: TerminalSize = { columns: 80, rows: 24 };

/** Bytes, split anywhere; or the number of bytes that were skipped because this reader of a shared terminal was too slow. */
export type TerminalPiece =
  | {
      readonly data: Buffer;
      /** Standard error of a program without a terminal. */
      readonly isError?: boolean;
    }
  | { readonly missedBytes: number };

/** Disposing hangs up: the program gets SIGHUP, as when a terminal window is closed. A shared terminal stays open. */
export interface Terminal extends AsyncDisposable {
  /** The output; ends after the program has exited. Can be read once; a slow reader slows down the program. */
  readonly output: AsyncIterable<TerminalPiece>;
  /** Exit code of the program; 128 plus the number of a signal. Resolves once {@link output} has ended. */
  readonly exitCode: Promise<number>;
  /** Writes input; resolves when it is accepted. Input after the program's exit is lost. */
  write(bytes: Uint8Array): Promise<void>;
  /** Closes the input. */
  endInput(): Promise<void>;
  resize(size: TerminalSize): void;
}
