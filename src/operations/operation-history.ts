/** The stored operations: those of the last day, within a limit for each user. */
import { decodePageToken, encodePageToken, invalidPageToken } from "../apps/records/page-token.ts";
import { RowReader } from "../store/row-reader.ts";
import type { ListOperationsRequestState } from "../../gen/svc/v1/values.ts";
import type { Log } from "../lib/log.ts";
import type { Statement, Store } from "../store/store.ts";
import {
  recordRows,
  selectRecords,
  type OperationFailure,
  type OperationRecord,
  type RecordRow,
} from "./operation-record.ts";

export interface OperationCaller {
  readonly uid: number;
  readonly root: boolean;
}

export interface OperationFilter {
  readonly appId: string;
  readonly state: ListOperationsRequestState | "";
  readonly limit: number;
  readonly pageToken: string;
}

export interface OperationHistoryOptions {
  store: Store;
  now: () => number;
  log: Pick<Log, "error">;
  /** See `OperationRegistryOptions`. */
  isDaemon: boolean;
}

export const retentionMs = 86_400_000;
export const maxRetained = { user: 100, root: 500 };
/** Listings read all of them at once; an error may contain the texts of a package's licenses. */
export const maxRetainedBytes = 4 * 1024 * 1024;

export class OperationHistory {
  readonly #options: Omit<OperationHistoryOptions, "log">;
  readonly #reader: RowReader<RecordRow, OperationRecord>;

  constructor(options: OperationHistoryOptions) {
    this.#options = options;
    this.#reader = new RowReader(recordRows, options.log);
  }

  /** Operations that an earlier daemon did not finish. */
  unfinished(): OperationRecord[] {
    const sql = "SELECT * FROM operation_records WHERE state = 'RUNNING' ORDER BY started_at";
    return this.#reader.readAll(this.#options.store.all<RecordRow>(sql));
  }

  /**
   * A page of stored and running operations, the newest first.
   * @param running the visible ones, whose stored records are older
   * @throws SvcError `invalid_request` for an invalid page token
   */
  list(
    { appId, state, limit, pageToken }: OperationFilter,
    caller: OperationCaller,
    running: readonly OperationRecord[],
  ): { records: OperationRecord[]; nextPageToken: string } {
    const before = pageToken === "" ? firstKey : readKey(decodePageToken(pageToken));
    const isListed = (record: OperationRecord): boolean =>
      (appId === "" || record.appId === appId) &&
      (state === "" || record.state === state) &&
      compare(record, before) > 0;
    const rows = this.#options.store.all<RecordRow>(
      `${selectRecords} WHERE (? OR owner_uid = ?) AND (? = '' OR app_id = ?) AND (? = '' OR state = ?)
         AND (ended_at IS NULL OR ended_at > ?) AND (started_at < ? OR (started_at = ? AND id < ?))
       ORDER BY started_at DESC, id DESC LIMIT ?`,
      ...[caller.root ? 1 : 0, caller.uid, appId, appId, state, state, this.#expiredAtMs()],
      ...[before.startedAtMs, before.startedAtMs, before.id],
      limit + 1 + running.length,
    );
    const runningIds = new Set(running.map(({ id }) => id));
    const stored = this.#readAll(rows.filter(({ id }) => !runningIds.has(id)));
    const all = [...running.filter(isListed), ...stored].toSorted(compare);
    const records = all.slice(0, limit);
    const last = records.at(-1);
    const hasMore = all.length > limit && last !== undefined;
    return { records, nextPageToken: hasMore ? encodePageToken(`${last.startedAtMs}.${last.id}`) : "" };
  }

  /** @returns undefined for an unknown or expired one */
  get(id: string): OperationRecord | undefined {
    const row = this.#options.store.get<RecordRow>("SELECT * FROM operation_records WHERE id = ?", id);
    const [record] = row === undefined ? [] : this.#readAll([row]);
    const isExpired = record?.endedAtMs !== undefined && record.endedAtMs <= this.#expiredAtMs();
    return isExpired ? undefined : record;
  }

  #readAll(rows: readonly RecordRow[]): OperationRecord[] {
    const records = this.#reader.readAll(rows);
    if (!this.#options.isDaemon) return records;
    // The daemon could not store their outcome.
    for (const record of records.filter(({ state }) => state === "RUNNING")) {
      record.state = "INTERRUPTED";
      record.error = interrupted("the outcome is unknown; check the app");
    }
    return records;
  }

  #expiredAtMs(): number {
    return this.#options.now() - retentionMs;
  }
}

type Key = Pick<OperationRecord, "startedAtMs" | "id">;

/** The position before the newest operation. */
const firstKey: Key = { startedAtMs: Number.MAX_SAFE_INTEGER, id: "" };

/** @throws SvcError `invalid_request` */
function readKey(text: string): Key {
  const [, startedAtMs, id] = /^(\d{1,15})\.([0-9a-f]{12})$/.exec(text) ?? [];
  if (startedAtMs === undefined || id === undefined) throw invalidPageToken();
  return { startedAtMs: Number(startedAtMs), id };
}

/** Newest first. */
function compare(one: Key, other: Key): number {
  if (one.startedAtMs !== other.startedAtMs) return other.startedAtMs - one.startedAtMs;
  return one.id < other.id ? 1 : one.id > other.id ? -1 : 0;
}

export function interrupted(message: string): OperationFailure {
  return { message, code: "unavailable", detail: { reason: "unavailable" } };
}

export function removeExpired(nowMs: number): Statement {
  return { sql: "DELETE FROM operation_records WHERE ended_at <= ?", params: [nowMs - retentionMs] };
}

/** Removes the oldest finished operations of a user above the number and the size that are retained. */
export function removeSurplus(ownerUid: number): Statement {
  return {
    sql: `DELETE FROM operation_records WHERE id IN (
            SELECT id FROM (
              SELECT id, row_number() OVER newest AS number, sum(octet_length(document)) OVER newest AS size_bytes
              FROM operation_records WHERE owner_uid = ? AND state <> 'RUNNING'
              WINDOW newest AS (ORDER BY started_at DESC, id DESC))
            WHERE number > ? OR (number > 1 AND size_bytes > ?))`,
    params: [ownerUid, ownerUid === 0 ? maxRetained.root : maxRetained.user, maxRetainedBytes],
  };
}
