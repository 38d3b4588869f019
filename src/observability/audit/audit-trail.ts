/**
 * Appends to the audit log: one chain of records for all processes that share the store. Each hash includes the previous hash.
 *
 * No call waits for its record or fails without it: records are written in batches after the calls. Records that cannot be written
 * are logged as errors, and the trail records their number as soon as it can be written again. On a full disk only calls with an
 * effect are recorded, as `essential` writes: rejected calls must not use up the reserve that stops and removals need.
 */
import { SvcError } from "../../errors.ts";
import type { SqlValue, Statement, Store } from "../../store/store.ts";
import {
  contentColumns,
  auditContentOf,
  contentValues,
  hashedText,
  namedContent,
  trailRecord,
  type AuditContent,
  type AuditedCall,
} from "./audit-record.ts";
import { IneffectiveCalls, mayHaveEffect } from "./ineffective-calls.ts";
import type { Log } from "../../lib/log.ts";

/** The method of the record that represents lost records; its target is their number. */
export const recordsLostMethod = "svc.audit/RecordsLost";

/**
 * Records that are retained of root, and of all other users together; older ones are pruned. The store's check at each start takes
 * 1 ms of CPU time for 1,000.
 */
const defaultLimit = 25_000;
/** One user has at most one fifth of the records of all users. */
const usersPerLimit = 5;
/** Maximum records that one batch prunes: a trail of an older version may be far above its limits. */
const pruneLimit = 1_000;
/** Records that are pruned beyond what is necessary when all users together have too many, so that it happens rarely. */
const pruneSlack = 256;
/** Maximum records that wait for the store. */
const defaultMaxPending = 10_000;
const batchLimit = 64;

export interface AuditTrailOptions {
  readonly store: Pick<Store, "write">;
  readonly log: Pick<Log, "error">;
  /** The name of a uid; empty for none. Never rejects. */
  readonly userName: (uid: number) => Promise<string>;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** How many records are retained of root, and as many of all other users. Default 25,000. */
  readonly limit?: number;
  /** The user with a separate share of records. Default: the daemon's user. */
  readonly rootUid?: number;
  /** Maximum records that wait for the store. Default 10,000. */
  readonly maxPending?: number;
  /** Calls `action` every so often until disposed. Default: a timer that keeps no process alive. */
  readonly every?: (intervalMs: number, action: () => void) => Disposable;
}

export class AuditTrail implements AsyncDisposable {
  readonly #options: Required<AuditTrailOptions>;
  readonly #ineffective: IneffectiveCalls;
  #pending: AuditContent[] = [];
  #flushing: Promise<void> | undefined;
  /** Lost records that the trail has not recorded yet. */
  #unreportedLosses = 0;
  #totalLosses = 0;

  constructor(options: AuditTrailOptions) {
    const rootUid = process.getuid?.() ?? 0;
    this.#options = { limit: defaultLimit, maxPending: defaultMaxPending, every, rootUid, ...options };
    const { now } = this.#options;
    this.#ineffective = new IneffectiveCalls({
      report: (content) => this.#take(content),
      now,
      every: this.#options.every,
    });
  }

  /** How many records were lost since the start. */
  get lost(): number {
    return this.#totalLosses;
  }

  /** Appends a record. Returns at once and never throws. Repeated calls without an effect become one record. */
  append(call: AuditedCall): void {
    const content = auditContentOf(call, this.#options.now());
    const hasEffect = call.changedNothing !== true && mayHaveEffect(content);
    if (hasEffect || this.#ineffective.admit(content)) this.#take(content);
  }

  #take(content: AuditContent): void {
    if (this.#pending.length >= this.#options.maxPending) {
      this.#recordLoss([content], `${this.#pending.length} audit records wait for the store already`);
      return;
    }
    this.#pending.push(content);
    this.#flushing ??= this.#flush();
  }

  /** Resolves when all earlier records are on disk or logged as lost. */
  async flush(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#ineffective.close();
    return this.flush();
  }

  async #flush(): Promise<void> {
    try {
      // Calls that end in one turn of the event loop are written together.
      await Promise.resolve();
      while (this.#pending.length > 0) {
        const batch = this.#pending.splice(0, batchLimit);
        await this.#write(await Promise.all(batch.map((content) => this.#named(content))));
      }
    } finally {
      this.#flushing = undefined;
    }
  }

  /** The name is looked up here, because no call waits for it. */
  async #named(content: AuditContent): Promise<AuditContent> {
    return content.kind === "anonymous"
      ? content
      : namedContent(content, await this.#options.userName(content.uid));
  }

  async #write(batch: readonly AuditContent[]): Promise<void> {
    const error = await this.#tryWrite(batch, false);
    if (error === undefined) return;
    if (!(error instanceof SvcError) || error.reason !== "disk_full") {
      this.#recordLoss(batch, error);
      return;
    }
    const isDone = ({ result }: AuditContent): boolean => result === "ok";
    const done = batch.filter(isDone);
    const refused = batch.filter((content) => !isDone(content));
    if (refused.length > 0) this.#recordLoss(refused, error);
    const essentialError = done.length === 0 ? undefined : await this.#tryWrite(done, true);
    if (essentialError !== undefined) this.#recordLoss(done, essentialError);
  }

  /** @returns the reason why it was not written */
  async #tryWrite(batch: readonly AuditContent[], essential: boolean): Promise<unknown> {
    const lost = this.#unreportedLosses;
    const contents = lost === 0 ? batch : [lostRecords(lost, this.#options.now()), ...batch];
    const statements = [...contents.flatMap(appendStatements), ...this.#pruneStatements(contents)];
    try {
      await this.#options.store.write(statements, { essential });
      this.#unreportedLosses -= lost;
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Prunes the oldest records of users who have too many now. */
  #pruneStatements(added: readonly AuditContent[]): Statement[] {
    const { limit, rootUid } = this.#options;
    const userLimit = Math.ceil(limit / usersPerLimit);
    const own = [...new Set(added.map(({ uid }) => uid))].flatMap((uid) =>
      pruned(oldestOfUserSql, [uid, uid === rootUid ? limit : userLimit, pruneLimit]),
    );
    const ofUsers = pruned(oldestOfUsersSql, [rootUid, limit, pruneLimit, Math.min(pruneSlack, limit >> 2)]);
    return [...own, ...ofUsers, { sql: moveAnchorSql }, { sql: removeAnchoredGapSql }];
  }

  #recordLoss(records: readonly AuditContent[], why: unknown): void {
    this.#unreportedLosses += records.length;
    this.#totalLosses += records.length;
    this.#options.log.error(
      { err: why, records },
      "audit records could not be written; this line is all that is left of them",
    );
  }
}

function lostRecords(count: number, time: number): AuditContent {
  return trailRecord(time, { method: recordsLostMethod, target: String(count), result: "data_loss" });
}

function every(intervalMs: number, action: () => void): Disposable {
  const timer = setInterval(action, intervalMs).unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

const insertSql = `
  INSERT INTO audit (seq, ${contentColumns.join(", ")}, hash)
  SELECT head_seq + 1, ${contentColumns.map(() => "?").join(", ")}, sha256(hex(head_hash) || ' ' || (head_seq + 1) || ' ' || ?)
  FROM audit_chain`;
const advanceSql = `
  UPDATE audit_chain SET head_seq = audit.seq, head_hash = audit.hash
  FROM audit WHERE audit.seq = audit_chain.head_seq + 1`;
/** ?1: the user, ?2: how many records they may have, ?3: how many to prune at most. */
const oldestOfUserSql = `
  SELECT seq FROM audit WHERE uid = ?1 ORDER BY seq
  LIMIT max(0, min(?3, (SELECT coalesce(max(records), 0) FROM audit_shares WHERE uid = ?1) - ?2))`;
/**
 * Prunes users who have more than half as many records as the user with the most; users with few records keep them. ?1: root, ?2: how many
 * records all others may have, ?3: how many to prune at most, ?4: how many more than necessary.
 */
const oldestOfUsersSql = `
  SELECT seq FROM audit WHERE uid IN (
    SELECT uid FROM audit_shares
    WHERE uid <> ?1 AND 2 * records > (SELECT max(records) FROM audit_shares WHERE uid <> ?1)
      AND (SELECT sum(records) FROM audit_shares WHERE uid <> ?1) > ?2)
  ORDER BY seq
  LIMIT max(0, min(?3, (SELECT coalesce(sum(records), 0) FROM audit_shares WHERE uid <> ?1) - ?2 + ?4))`;
const moveAnchorSql = `
  UPDATE audit_chain SET (anchor_seq, anchor_hash) =
    (SELECT last_seq, hash FROM audit_gaps WHERE first_seq = anchor_seq + 1)
  WHERE EXISTS (SELECT 1 FROM audit_gaps WHERE first_seq = anchor_seq + 1)`;
const removeAnchoredGapSql = "DELETE FROM audit_gaps WHERE last_seq <= (SELECT anchor_seq FROM audit_chain)";

/** The hash of a pruned record stays in its gap, so that the chain can be verified across it. @param oldestSql their numbers */
function pruned(oldestSql: string, params: readonly SqlValue[]): Statement[] {
  return [
    {
      sql: `INSERT INTO audit_gaps (first_seq, last_seq, hash) SELECT seq, seq, hash FROM audit WHERE seq IN (${oldestSql})`,
      params,
    },
    { sql: `DELETE FROM audit WHERE seq IN (${oldestSql})`, params },
  ];
}

/** The head is read and moved inside of the write's own transaction, so that processes never fork the chain. */
function appendStatements(content: AuditContent): Statement[] {
  return [
    { sql: insertSql, params: [...contentValues(content), hashedText(content)], changes: 1 },
    { sql: advanceSql, changes: 1 },
  ];
}
