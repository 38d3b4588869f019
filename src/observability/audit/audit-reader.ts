/** Reads the audit log, newest first, and verifies its chain. */
import { setImmediate } from "node:timers/promises";
import { invalidField } from "../../errors.ts";
import { readIfWhole } from "../../store/row-reader.ts";
import type { SqlValue, Store } from "../../store/store.ts";
import { auditRows, contentColumns, hashOf, shownRecord, type AuditRow } from "./audit-record.ts";

export interface AuditFilter {
  /** Full name of a method. */
  readonly method?: string | undefined;
  readonly uid?: number | undefined;
  readonly target?: string | undefined;
  /** Only records newer than this one. */
  readonly afterSeq?: number | undefined;
}

export interface AuditPage {
  readonly records: AuditRow[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
}

export interface ChainEnd {
  readonly seq: number;
  readonly hash: Uint8Array;
}

export interface Verification {
  /** The first problem, with the number of the record; undefined if the chain is valid. */
  readonly problem: string | undefined;
  /** How many records were checked. */
  readonly records: number;
  readonly anchor: ChainEnd;
  readonly head: ChainEnd;
}

const columns = ["seq", ...contentColumns, "hash"].join(", ");
/** Yield to the event loop after this many records, about 2 ms. */
const verifyPageSize = 100;

export class AuditReader {
  readonly #store: Pick<Store, "all" | "get">;

  constructor(store: Pick<Store, "all" | "get">) {
    this.#store = store;
  }

  /** @throws SvcError `invalid_request` for an unknown page token */
  list(filter: AuditFilter, limit: number, pageToken: string): AuditPage {
    const conditions: [sql: string, value: SqlValue | undefined][] = [
      ["method = ?", filter.method],
      ["uid = ?", filter.uid],
      ["target = ?", filter.target],
      ["seq > ?", filter.afterSeq],
      // A number that no record can have matches nothing.
      ["seq > ?", 0],
      ["seq < ?", pageToken === "" ? Number.MAX_SAFE_INTEGER : parsePageToken(pageToken)],
    ];
    const given = conditions.filter(([, value]) => value !== undefined);
    const where = given.length === 0 ? "" : `WHERE ${given.map(([sql]) => sql).join(" AND ")}`;
    const rows = this.#store.all<AuditRow>(
      `SELECT ${columns} FROM audit ${where} ORDER BY seq DESC LIMIT ?`,
      ...given.map(([, value]) => value ?? null),
      limit + 1,
    );
    const records = rows.slice(0, limit).map(shownRecord);
    const last = records.at(-1);
    return { records, nextPageToken: rows.length > limit && last !== undefined ? String(last.seq) : "" };
  }

  /**
   * Recomputes every hash from the anchor to the head. Records may be added and pruned at the same time.
   * @throws the reason of `signal`
   */
  async verify(signal?: AbortSignal): Promise<Verification> {
    const { anchor, head } = this.#ends();
    let previous = anchor;
    let records = 0;
    const result = (problem?: string): Verification => ({ problem, records, anchor, head });

    for (;;) {
      signal?.throwIfAborted();
      const page = this.#store.all<AuditRow>(
        `SELECT ${columns} FROM audit WHERE seq > ? ORDER BY seq LIMIT ?`,
        previous.seq,
        verifyPageSize,
      );
      for (const row of page) {
        const before = this.#endBefore(row.seq, previous);
        if (before === undefined) return result(`record ${previous.seq + 1} is missing`);
        previous = before;
        // Pruned after the page was read.
        if (previous.seq >= row.seq) continue;
        const { seq, hash } = row;
        if (!hashOf(previous.hash, seq, row).equals(hash)) {
          return result(`record ${seq} is not what was written, or does not follow record ${previous.seq}`);
        }
        if (readIfWhole(auditRows, row) === undefined) {
          return result(`record ${seq} has a value that its column does not allow`);
        }
        if (seq === head.seq && !Buffer.from(hash).equals(head.hash)) {
          return result(`record ${seq} is not the one that was written last`);
        }
        previous = { seq, hash };
        records += 1;
      }
      // Stop at the head from the start of the check: otherwise it might never end while records are added faster than read.
      if (page.length < verifyPageSize || previous.seq >= head.seq) break;
      await setImmediate();
    }
    return previous.seq < head.seq ? result(`record ${previous.seq + 1} is missing`) : result();
  }

  /**
   * The link before record `seq`: `previous`, or the last pruned record between the two. At or after `seq` if the record was pruned
   * after it was read. Undefined: records are missing.
   */
  #endBefore(seq: number, previous: ChainEnd): ChainEnd | undefined {
    if (seq === previous.seq + 1) return previous;
    const gap = this.#store.get<{ first_seq: number; last_seq: number; hash: Uint8Array }>(
      "SELECT first_seq, last_seq, hash FROM audit_gaps WHERE last_seq >= ? ORDER BY last_seq LIMIT 1",
      seq - 1,
    );
    if (gap !== undefined && gap.first_seq <= previous.seq + 1) return { seq: gap.last_seq, hash: gap.hash };
    const { anchor } = this.#ends();
    return anchor.seq >= seq - 1 ? anchor : undefined;
  }

  #ends(): { anchor: ChainEnd; head: ChainEnd } {
    const row = this.#store.get<
      Record<"anchor_seq" | "head_seq", number> & Record<"anchor_hash" | "head_hash", Uint8Array>
    >("SELECT anchor_seq, anchor_hash, head_seq, head_hash FROM audit_chain");
    if (row === undefined) throw new Error("the audit log has lost the ends of its chain");
    return {
      anchor: { seq: row.anchor_seq, hash: row.anchor_hash },
      head: { seq: row.head_seq, hash: row.head_hash },
    };
  }
}

/** The last record of the previous page. */
function parsePageToken(token: string): number {
  const seq = /^[1-9][0-9]{0,15}$/.test(token) ? Number(token) : NaN;
  if (!Number.isSafeInteger(seq))
    throw invalidField("page_token", "is not a next_page_token of an earlier response");
  return seq;
}
