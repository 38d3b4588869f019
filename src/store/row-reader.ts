/**
 * Rows as svc writes them, which a disk, or somebody with an editor, may have changed. One that cannot be read takes nothing else
 * away: whoever reads it puts something in its place, and the row itself stays as it is until it is written again or removed.
 */
import { noLog, type Log } from "../lib/log.ts";
import { UnreadableRow, type Check } from "./row-document.ts";

/** The rows of one table. */
export interface RowKind<Row, T> {
  readonly table: string;
  /** Which of its rows, in SQL; absent for all. */
  readonly where?: string;
  /** What each column must be: as its type and its CHECKs in the schema want it, and as the contract can say it. */
  readonly columns: Readonly<Record<string, Check>>;
  /** What a row is of, for people: `app "web"`. */
  readonly nameOf: (row: Row) => string;
  /** What they can do about one that cannot be read, with the command. */
  readonly remedy: (row: Row) => string;
  /** Of one whose columns are right. @throws UnreadableRow */
  readonly read: (row: Row) => T;
}

/** @throws UnreadableRow */
export function readRow<Row, T>({ columns, read }: RowKind<Row, T>, row: Row): T {
  const wrong: string[] = [];
  // Not every question asks for all of them.
  for (const name in columns) {
    const value = (row as Readonly<Record<string, unknown>>)[name];
    if (value !== undefined && columns[name]?.(value) === false) wrong.push(name);
  }
  if (wrong.length > 0) throw new UnreadableRow(`it has no right ${wrong.join(", ")}`);
  return read(row);
}

/** What the row holds; undefined where it cannot be read. */
export function readIfWhole<Row, T>(kind: RowKind<Row, T>, row: Row): T | undefined {
  try {
    return readRow(kind, row);
  } catch (error) {
    if (error instanceof UnreadableRow) return undefined;
    throw error;
  }
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
      const read = readRow(this.#kind, row);
      if (this.#told.size > 0) this.#told.delete(this.#kind.nameOf(row));
      return read;
    } catch (error) {
      if (!(error instanceof UnreadableRow)) throw error;
      this.#tell(this.#kind.nameOf(row), error.message);
      return undefined;
    }
  }

  /** Those that can be read. */
  readAll(rows: readonly Row[]): T[] {
    return rows.map((row) => this.read(row)).filter((read) => read !== undefined);
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
