/**
 * Reads rows that a damaged disk, or somebody with an editor, may have changed. An unreadable row affects nothing else:
 * the reader substitutes a value, and the row stays unchanged until it is written again or removed.
 */
import { noLog, type Log } from "../lib/log.ts";
import { UnreadableRow, type Check } from "./row-document.ts";

/** The rows of one table. */
export interface RowKind<Row, T> {
  readonly table: string;
  /** SQL condition that selects the rows; absent for all. */
  readonly where?: string;
  /** The check of each column: its type and CHECKs in the schema, and what the contract can express. */
  readonly columns: Readonly<Record<string, Check>>;
  /** Names the object of a row in messages: `app "web"`. */
  readonly nameOf: (row: Row) => string;
  /** Advice about an unreadable row, with the command. */
  readonly remedy: (row: Row) => string;
  /** Converts a row whose columns are valid. @throws UnreadableRow */
  readonly read: (row: Row) => T;
}

/** @throws UnreadableRow */
export function readRow<Row, T>({ columns, read }: RowKind<Row, T>, row: Row): T {
  const wrong: string[] = [];
  // Not every query selects all columns.
  for (const name in columns) {
    const value = (row as Readonly<Record<string, unknown>>)[name];
    if (value !== undefined && columns[name]?.(value) === false) wrong.push(name);
  }
  if (wrong.length > 0) throw new UnreadableRow(`it has an invalid ${wrong.join(", ")}`);
  return read(row);
}

/** The value of a row; undefined if it cannot be read. */
export function readIfWhole<Row, T>(kind: RowKind<Row, T>, row: Row): T | undefined {
  try {
    return readRow(kind, row);
  } catch (error) {
    if (error instanceof UnreadableRow) return undefined;
    throw error;
  }
}

/** Unreadable rows that are logged; further ones are not. */
const maxLogged = 1_000;

export class RowReader<Row, T> {
  readonly #kind: RowKind<Row, T>;
  readonly #log: Pick<Log, "error">;
  /** Unreadable rows that were logged already. */
  readonly #logged = new Set<string>();

  constructor(kind: RowKind<Row, T>, log: Pick<Log, "error"> = noLog) {
    this.#kind = kind;
    this.#log = log;
  }

  /** The value of a row; undefined if it cannot be read, which is logged once. */
  read(row: Row): T | undefined {
    try {
      const read = readRow(this.#kind, row);
      if (this.#logged.size > 0) this.#logged.delete(this.#kind.nameOf(row));
      return read;
    } catch (error) {
      if (!(error instanceof UnreadableRow)) throw error;
      this.#report(this.#kind.nameOf(row), error.message);
      return undefined;
    }
  }

  /** The values of all readable rows. */
  readAll(rows: readonly Row[]): T[] {
    return rows.map((row) => this.read(row)).filter((read) => read !== undefined);
  }

  #report(name: string, problem: string): void {
    if (this.#logged.has(name) || this.#logged.size >= maxLogged) return;
    this.#logged.add(name);
    this.#log.error(
      { table: this.#kind.table, problem },
      `the stored data of ${name} cannot be read: it stays unchanged until it is written again or removed`,
    );
  }
}
