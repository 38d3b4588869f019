/** Reads the audit trail, newest first, and verifies its chain. */
import { setImmediate } from "node:timers/promises";
import { invalidField } from "../errors.ts";
import type { SqlValue, Store } from "../store/store.ts";
import { contentColumns, hashOf, shownRecord, type AuditRow } from "./audit-record.ts";

export interface AuditFilter {
  /** Full name of a method. */
  readonly method?: string | undefined;
  readonly uid?: number | undefined;
  readonly target?: string | undefined;
  /** Only newer records than this one. */
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
  /** What is wrong first, with the number of the record; undefined when the chain holds. */
  readonly problem: string | undefined;
  /** How many records were looked at. */
  readonly records: number;
  readonly anchor: ChainEnd;
  readonly head: ChainEnd;
}

const columns = ["seq", ...contentColumns, "hash"].join(", ");
/** The event loop is let go after this many records: some 2 ms. */
const verifyPageSize = 100;

export class AuditReader {
  readonly #store: Pick<Store, "all" | "get">;

  constructor(store: Pick<Store, "all" | "get">) {
    this.#store = store;
  }

  /** @throws SvcError `invalid_request` for a page token that is none of ours */
  list(filter: AuditFilter, limit: number, pageToken: string): AuditPage {
    const conditions: [sql: string, value: SqlValue | undefined][] = [
      ["method = ?", filter.method],
      ["uid = ?", filter.uid],
      ["target = ?", filter.target],
      ["seq > ?", filter.afterSeq],
      // What has no number that a record has cannot be asked for.
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
   * Computes every hash again, from the anchor to the head. Records may come and be pruned meanwhile.
   * @throws what `signal` aborts with
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
        if (row.seq !== previous.seq + 1) {
          // What was pruned since the last page is no gap.
          const moved = this.#ends().anchor;
          if (moved.seq !== row.seq - 1 || moved.seq < previous.seq) {
            return result(`record ${previous.seq + 1} is missing`);
          }
          previous = moved;
        }
        const { seq, hash } = row;
        if (!hashOf(previous.hash, seq, row).equals(hash)) {
          return result(`record ${seq} is not what was written, or does not follow record ${previous.seq}`);
        }
        if (seq === head.seq && !Buffer.from(hash).equals(head.hash)) {
          return result(`record ${seq} is not the one that was written last`);
        }
        previous = { seq, hash };
        records += 1;
      }
      // Behind the head that it began with is the next one's: where records come faster than they are read there is no end.
      if (page.length < verifyPageSize || previous.seq >= head.seq) break;
      await setImmediate();
    }
    return previous.seq < head.seq ? result(`record ${previous.seq + 1} is missing`) : result();
  }

  #ends(): { anchor: ChainEnd; head: ChainEnd } {
    const row = this.#store.get<
      Record<"anchor_seq" | "head_seq", number> & Record<"anchor_hash" | "head_hash", Uint8Array>
    >("SELECT anchor_seq, anchor_hash, head_seq, head_hash FROM audit_chain");
    if (row === undefined) throw new Error("the audit trail has lost the ends of its chain");
    return {
      anchor: { seq: row.anchor_seq, hash: row.anchor_hash },
      head: { seq: row.head_seq, hash: row.head_hash },
    };
  }
}

/** The last record of the page before. */
function parsePageToken(token: string): number {
  const seq = /^[1-9][0-9]{0,15}$/.test(token) ? Number(token) : NaN;
  if (!Number.isSafeInteger(seq))
    throw invalidField("page_token", "is no next_page_token of an earlier answer");
  return seq;
}
