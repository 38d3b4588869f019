/**
 * Rows of tables whose columns hold what only one folder understands. One that cannot be read takes nothing else away: whoever
 * reads it puts something in its place, and the row itself stays as it is until it is written again or removed.
 */
import { noLog, type Log } from "../lib/log.ts";
import { UnreadableRow } from "./row-document.ts";

/** The rows of one table. */
export interface RowKind<Row, T> {
  readonly table: string;
  /** Which of its rows, in SQL; absent for all. */
  readonly where?: string;
  /** What a row is of, for people: `app "web"`. */
  readonly nameOf: (row: Row) => string;
  /** @throws UnreadableRow */
  readonly read: (row: Row) => T;
}

/** Of those that cannot be read; the log says nothing of more. */
const maxTold = 1_000;

export class RowReader<Row, T> {
  readonly #kind: RowKind<Row, T>;
  readonly #log: Pick<Log, "error">;
  /** Those of which the log says already that they cannot be read. */
  readonly #told = new Set<string>();

  constructor(kind: RowKind<Row, T>, log: Pick<Log, "error"> = noLog) {
    this.#kind = kind;
    this.#log = log;
  }

  /** What the row holds; undefined where it cannot be read, which the log says once. */
  read(row: Row): T | undefined {
    try {
      const read = this.#kind.read(row);
      if (this.#told.size > 0) this.#told.delete(this.#kind.nameOf(row));
      return read;
    } catch (error) {
      if (!(error instanceof UnreadableRow)) throw error;
      this.#tell(this.#kind.nameOf(row), error.message);
      return undefined;
    }
  }

  #tell(name: string, problem: string): void {
    if (this.#told.has(name) || this.#told.size >= maxTold) return;
    this.#told.add(name);
    this.#log.error(
      { table: this.#kind.table, problem },
      `what is kept of ${name} cannot be read: it stays as it is until it is written again or removed`,
    );
  }
}
