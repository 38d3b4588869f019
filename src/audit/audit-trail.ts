/**
 * Appends to the audit trail: one chain of records for all processes that share the store, each hashed together with its
 * predecessor's hash.
 *
 * No call waits for its record or fails for want of it: records go to the store in batches, behind the calls. What
 * cannot be written is logged as an error, and the trail itself says how many are missing as soon as it can be written
 * again. On a full disk only calls that did something are recorded, as `essential` writes: refused calls must not be able
 * to use up the reserve that stops and removals need.
 */
import { SvcError } from "../errors.ts";
import type { Statement, Store } from "../store/store.ts";
import {
  contentColumns,
  contentOf,
  contentValues,
  hashedText,
  namedContent,
  trailRecord,
  type AuditContent,
  type AuditedCall,
} from "./audit-record.ts";
import { RefusedCalls } from "./refused-calls.ts";
import type { Log } from "../lib/log.ts";

/** The method of the record that stands for records that were lost; its target is their number. */
export const recordsLostMethod = "svc.audit/RecordsLost";

/** How many records are kept; older ones are pruned. The store's check at each start takes 1 ms of processor time for 1,000. */
const defaultLimit = 50_000;
/** How many records may wait for the store. */
const defaultMaxPending = 10_000;
const batchLimit = 64;

export interface AuditTrailOptions {
  readonly store: Pick<Store, "write">;
  readonly log: Pick<Log, "error">;
  /** The name of a uid; empty for none. Never rejects. */
  readonly userName: (uid: number) => Promise<string>;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** How many records are kept. Default 50,000. */
  readonly limit?: number;
  /** How many records may wait for the store. Default 10,000. */
  readonly maxPending?: number;
  /** Calls `action` every so often until disposed. Default: a timer that keeps no process alive. */
  readonly every?: (intervalMs: number, action: () => void) => Disposable;
}

export class AuditTrail implements AsyncDisposable {
  readonly #options: Required<AuditTrailOptions>;
  readonly #refused: RefusedCalls;
  #pending: AuditContent[] = [];
  #flushing: Promise<void> | undefined;
  /** Records that the trail does not say anything of yet. */
  #lost = 0;
  #lostInAll = 0;

  constructor(options: AuditTrailOptions) {
    this.#options = { limit: defaultLimit, maxPending: defaultMaxPending, every, ...options };
    const { now } = this.#options;
    this.#refused = new RefusedCalls({
      tell: (content) => this.#take(content),
      now,
      every: this.#options.every,
    });
  }

  /** How many records could not be written since the start. */
  get lost(): number {
    return this.#lostInAll;
  }

  /** Takes a record. Returns at once and never throws. Refused calls that repeat are one record together. */
  append(call: AuditedCall): void {
    const content = contentOf(call, this.#options.now());
    if (!RefusedCalls.isRefused(content) || this.#refused.admit(content)) this.#take(content);
  }

  #take(content: AuditContent): void {
    if (this.#pending.length >= this.#options.maxPending) {
      this.#lose([content], `${this.#pending.length} audit records wait for the store already`);
      return;
    }
    this.#pending.push(content);
    this.#flushing ??= this.#flush();
  }

  /** Resolves when what was appended before is durable, or logged as lost. */
  async flush(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#refused.close();
    return this.flush();
  }

  async #flush(): Promise<void> {
    try {
      // Calls that end in one turn are written together.
      await Promise.resolve();
      while (this.#pending.length > 0) {
        const batch = this.#pending.splice(0, batchLimit);
        await this.#write(await Promise.all(batch.map((content) => this.#named(content))));
      }
    } finally {
      this.#flushing = undefined;
    }
  }

  /** Looked up here, where no call waits for it. */
  async #named(content: AuditContent): Promise<AuditContent> {
    return content.kind === "anonymous"
      ? content
      : namedContent(content, await this.#options.userName(content.uid));
  }

  async #write(batch: readonly AuditContent[]): Promise<void> {
    const error = await this.#tryWrite(batch, false);
    if (error === undefined) return;
    if (!(error instanceof SvcError) || error.reason !== "disk_full") {
      this.#lose(batch, error);
      return;
    }
    const isDone = ({ result }: AuditContent): boolean => result === "ok";
    const done = batch.filter(isDone);
    const refused = batch.filter((content) => !isDone(content));
    if (refused.length > 0) this.#lose(refused, error);
    const essentialError = done.length === 0 ? undefined : await this.#tryWrite(done, true);
    if (essentialError !== undefined) this.#lose(done, essentialError);
  }

  /** @returns why it was not written */
  async #tryWrite(batch: readonly AuditContent[], essential: boolean): Promise<unknown> {
    const lost = this.#lost;
    const contents = lost === 0 ? batch : [lostRecords(lost, this.#options.now()), ...batch];
    const statements = [...contents.flatMap(appendStatements), ...pruneStatements(this.#options.limit)];
    try {
      await this.#options.store.write(statements, { essential });
      this.#lost -= lost;
      return undefined;
    } catch (error) {
      return error;
    }
  }

  #lose(records: readonly AuditContent[], why: unknown): void {
    this.#lost += records.length;
    this.#lostInAll += records.length;
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
const moveAnchorSql = `
  UPDATE audit_chain SET (anchor_seq, anchor_hash) =
    (SELECT seq, hash FROM audit WHERE seq <= head_seq - ?1 ORDER BY seq DESC LIMIT 1)
  WHERE EXISTS (SELECT 1 FROM audit WHERE seq <= head_seq - ?1)`;
const pruneSql = "DELETE FROM audit WHERE seq <= (SELECT anchor_seq FROM audit_chain)";

/** The head is read and moved inside of the write's own transaction, so that processes never fork the chain. */
function appendStatements(content: AuditContent): Statement[] {
  return [
    { sql: insertSql, params: [...contentValues(content), hashedText(content)], changes: 1 },
    { sql: advanceSql, changes: 1 },
  ];
}

/** The hash of the newest pruned record stays behind as the anchor of what is kept. */
function pruneStatements(limit: number): Statement[] {
  return [{ sql: moveAnchorSql, params: [limit] }, { sql: pruneSql }];
}
