/**
 * Reads jobs in slices of a millisecond or two, so that a hundred thousand jobs do not block the event loop.
 */
import type { Store } from "../../store/store.ts";
import { keyText, type Job, type JobKey } from "./job.ts";
import { jobColumns, type JobReader, type JobRow } from "./job-row.ts";
import { JobTable, type JobChange } from "./job-table.ts";

/** The jobs at a revision. */
export interface JobState {
  readonly table: JobTable;
  /** Undefined before the first read. */
  readonly seen: number | undefined;
}

/** Limits of a slice, in characters of documents and in rows. */
const pieceChars = 1 << 17;
const [minRows, maxRows] = [2, 96];

interface ChangedRow extends Omit<JobRow, "document"> {
  change: number;
  changed_uid: number;
  changed_id: string;
  /** Null if the job was removed. */
  document: string | null;
}

export class JobReading {
  readonly #store: Store;
  readonly #reader: JobReader;
  /** Rows per slice, adapted to the size of documents. */
  #rows = minRows;

  constructor(store: Store, reader: JobReader) {
    this.#store = store;
    this.#reader = reader;
  }

  /** The number of rows to read, counted up to one more than `bound`. */
  rowsToRead(state: JobState, bound: number): number {
    const { seen } = state;
    const last = this.#lastChange();
    if (seen !== undefined && this.#areRecorded(seen, last)) return last - seen;
    const row = this.#store.get<{ n: number }>(
      "SELECT count(*) AS n FROM (SELECT 1 FROM jobs LIMIT ?)",
      bound + 1,
    );
    return row?.n ?? 0;
  }

  /** Reads until no newer change exists, so that the result is consistent. */
  *catchUp(state: JobState): Generator<undefined, JobState> {
    let { table, seen } = state;
    for (;;) {
      // Read first: a job that is written in between is read again, not missed.
      const last = this.#lastChange();
      if (last === seen) return { table, seen };
      table =
        seen !== undefined && this.#areRecorded(seen, last)
          ? yield* this.#readChanged(table, seen, last)
          : yield* this.#readAll(table);
      seen = last;
    }
  }

  #lastChange(): number {
    const row = this.#store.get<{ revision: number | null }>(
      "SELECT max(revision) AS revision FROM job_changes",
    );
    return row?.revision ?? 0;
  }

  /** Whether all changes after `seen` are recorded per job. */
  #areRecorded(seen: number, last: number): boolean {
    if (last === seen) return true;
    const first = this.#store.get<{ revision: number }>("SELECT min(revision) AS revision FROM job_changes");
    const many = this.#store.get<{ revision: number | null }>(
      "SELECT max(revision) AS revision FROM job_changes WHERE id = ''",
    );
    return first !== undefined && first.revision <= seen + 1 && (many?.revision ?? 0) <= seen;
  }

  *#readAll(known: JobTable): Generator<undefined, JobTable> {
    const changes: JobChange[] = [];
    let after: JobKey = { ownerUid: -1, id: "" };
    for (;;) {
      const rows = this.#store.all<JobRow>(
        `SELECT ${jobColumns} FROM jobs WHERE (owner_uid, id) > (?, ?) ORDER BY owner_uid, id LIMIT ?`,
        after.ownerUid,
        after.id,
        this.#rows,
      );
      for (const row of rows) {
        const key = { ownerUid: row.owner_uid, id: row.id };
        changes.push({ key, job: this.#ifUnchanged(known.get(key), row) });
        after = key;
      }
      if (rows.length < this.#rows) return yield* new JobTable().with(changes);
      this.#pace(rows);
      yield;
    }
  }

  *#readChanged(table: JobTable, seen: number, last: number): Generator<undefined, JobTable> {
    const changes = new Map<string, JobChange>();
    for (let after = seen; after < last;) {
      const rows = this.#store.all<ChangedRow>(
        `SELECT c.revision AS change, c.owner_uid AS changed_uid, c.id AS changed_id, jobs.*
         FROM job_changes AS c LEFT JOIN jobs ON jobs.owner_uid = c.owner_uid AND jobs.id = c.id
         WHERE c.revision > ? AND c.revision <= ? ORDER BY c.revision LIMIT ?`,
        after,
        last,
        this.#rows,
      );
      for (const row of rows) {
        const key = { ownerUid: row.changed_uid, id: row.changed_id };
        const known = table.get(key);
        const job = row.document === null ? undefined : this.#ifUnchanged(known, row as JobRow);
        if (job === known) changes.delete(keyText(key));
        else changes.set(keyText(key), { key, job });
        after = row.change;
      }
      if (rows.length < this.#rows) break;
      this.#pace(rows);
      yield;
    }
    return changes.size === 0 ? table : yield* table.withAll(changes.values());
  }

  /** The known job if its row is unchanged. */
  #ifUnchanged(known: Job | undefined, row: JobRow): Job | undefined {
    return known?.revision === row.revision ? known : this.#reader.read(row);
  }

  #pace(rows: readonly { document: string | null }[]): void {
    const chars = rows.reduce((sum, { document }) => sum + (document?.length ?? 0), 0);
    const targetRows = Math.floor((pieceChars * rows.length) / Math.max(1, chars));
    this.#rows = Math.max(minRows, Math.min(maxRows, targetRows, this.#rows * 2));
  }
}
