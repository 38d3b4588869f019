/** The long calls that this daemon runs, and those that finished within the last day: the resources of OperationService. */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { OperationKind } from "../../gen/svc/v1/values.ts";
import type { WorkOptions } from "../work/progress.ts";
import { SvcError, notFound } from "../errors.ts";
import type { JsonObject } from "../lib/json.ts";
import type { Log } from "../lib/log.ts";
import { unlessAborted } from "../lib/abort.ts";
import type { Statement, Store } from "../store/store.ts";
import { report } from "./operation-log.ts";
import {
  interrupted,
  OperationHistory,
  removeExpired,
  removeSurplus,
  type OperationFilter,
  type OperationCaller,
} from "./operation-history.ts";
import {
  saveRecord,
  type OperationFailure,
  type OperationLine,
  type OperationRecord,
} from "./operation-record.ts";

export interface OperationStart {
  readonly kind: OperationKind;
  readonly appId: string;
  readonly ownerUid: number;
  readonly callerUid: number;
  /** Detached operations of one share are counted together; undefined: no limit. */
  readonly share: string | undefined;
  /** False: `signal` cancels the work as well. */
  readonly detached: boolean;
  readonly signal: AbortSignal;
}

/** How an outcome is stored. */
export interface OperationOutcome<T> {
  result: (value: T) => JsonObject | undefined;
  failure: (thrown: unknown, signal: AbortSignal) => OperationFailure;
}

export type OperationWork = WorkOptions & { readonly signal: AbortSignal };

export interface StartedOperation<T> {
  readonly id: string;
  /** The outcome of the work. */
  readonly finished: Promise<T>;
  /** Resolves when a crash of the daemon no longer loses the operation. */
  readonly stored: Promise<void>;
}

export interface OperationRegistryOptions {
  store: Store;
  now: () => number;
  log: Pick<Log, "warn" | "error">;
  /** False in a command that works without a daemon: it only reads stored operations. */
  isDaemon: boolean;
  /** Limit for concurrent detached operations of one share. */
  maxRunningPerUser: number;
  /** Cancels all running operations. */
  shutdownSignal: AbortSignal;
  onStart: (record: OperationRecord) => void;
  onFinish: (record: OperationRecord) => void;
}

interface Running {
  readonly record: OperationRecord;
  readonly share: string | undefined;
  readonly controller: AbortController;
  /** Resolves when the outcome is stored. */
  readonly closed: PromiseWithResolvers<undefined>;
  /** Resolves at the next change. */
  changed: PromiseWithResolvers<undefined>;
  saveTimer?: NodeJS.Timeout | undefined;
}

/** Progress and log lines that a crash may lose. */
const saveEveryMs = 2_000;
/** Minimum milliseconds between two updates of a follower. */
const followEveryMs = 100;
/** Milliseconds for canceled work to undo its changes at shutdown; the next start undoes the rest. */
const shutdownGraceMs = 10_000;

export class OperationRegistry implements AsyncDisposable {
  readonly #options: OperationRegistryOptions;
  readonly #history: OperationHistory;
  readonly #running = new Map<string, Running>();
  /** Interrupted operations of an earlier daemon, by app. */
  readonly #interrupted = new Map<string, OperationRecord>();

  constructor(options: OperationRegistryOptions) {
    this.#options = options;
    this.#history = new OperationHistory(options);
  }

  /** Marks running operations of an earlier daemon as INTERRUPTED. Call this before recovery starts. */
  async start(): Promise<void> {
    const { now, isDaemon } = this.#options;
    if (!isDaemon) return;
    const unfinished = this.#history.unfinished();
    for (const record of unfinished) {
      record.state = "INTERRUPTED";
      record.endedAtMs = now();
      record.error = interrupted("the daemon died before this finished");
      if (record.appId !== "") this.#interrupted.set(record.appId, record);
    }
    await this.#write([...unfinished.map(saveRecord), removeExpired(now())]);
  }

  /** Adds the result of the recovery of its app to an interrupted operation. */
  readonly onRecovered = (appId: string, what: string): void => {
    const record = this.#interrupted.get(appId);
    if (record?.error === undefined) return;
    record.error = interrupted(`the daemon died before this finished; ${what}`);
    void this.#write([saveRecord(record)]);
  };

  /**
   * Runs work as an operation.
   * @throws SvcError `not_possible` for detached work without a daemon, `too_many`
   */
  run<T>(
    start: OperationStart,
    work: (options: OperationWork) => Promise<T>,
    outcome: OperationOutcome<T>,
  ): StartedOperation<T> {
    const { now, shutdownSignal } = this.#options;
    const { signal, share, ...about } = start;
    if (start.detached) this.#requireSlot(start);
    const record: OperationRecord = {
      ...{ ...about, id: randomBytes(6).toString("hex"), state: "RUNNING", startedAtMs: now() },
      ...{ phase: "", message: "", service: "", lines: [] },
    };
    const controller = new AbortController();
    const signals = [controller.signal, shutdownSignal, ...(start.detached ? [] : [signal])];
    const [closed, changed] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
    const running: Running = { record, share, controller, closed, changed };
    this.#running.set(record.id, running);
    const stored = this.#write([saveRecord(record)]);
    this.#options.onStart(record);
    const finished = this.#settle(running, AbortSignal.any(signals), work, outcome);
    // A detached caller does not wait for the outcome.
    finished.catch(() => undefined);
    return { id: record.id, finished, stored };
  }

  async #settle<T>(
    running: Running,
    signal: AbortSignal,
    work: (options: OperationWork) => Promise<T>,
    outcome: OperationOutcome<T>,
  ): Promise<T> {
    const { record } = running;
    try {
      const value = await work({
        signal,
        onProgress: (progress) => {
          if (report(record, progress, this.#options.now())) this.#saveSoon(running);
          wake(running);
        },
        onCreate: (appId) => {
          if (record.appId !== "") return;
          record.appId = appId;
          void this.#write([saveRecord(record)]);
          wake(running);
        },
      });
      record.state = "SUCCEEDED";
      record.result = outcome.result(value);
      return value;
    } catch (error) {
      this.#fail(record, error, outcome.failure(error, signal));
      throw error;
    } finally {
      void this.#finish(running);
    }
  }

  #fail(record: OperationRecord, thrown: unknown, failure: OperationFailure): void {
    const { shutdownSignal } = this.#options;
    record.error = failure;
    record.state = failure.code === "canceled" ? "CANCELED" : "FAILED";
    if (!shutdownSignal.aborted) return;
    record.state = "INTERRUPTED";
    const outcome = thrown === shutdownSignal.reason ? "; its changes were undone" : `: ${failure.message}`;
    record.error = interrupted(`the daemon was stopped before this finished${outcome}`);
  }

  async #finish(running: Running): Promise<void> {
    const { record, saveTimer, closed } = running;
    const { now, onFinish } = this.#options;
    clearTimeout(saveTimer);
    record.endedAtMs = now();
    wake(running);
    onFinish(record);
    await this.#write([saveRecord(record), removeExpired(now()), removeSurplus(record.ownerUid)]);
    this.#running.delete(record.id);
    closed.resolve(undefined);
  }

  /** @throws SvcError */
  #requireSlot({ share }: OperationStart): void {
    const { isDaemon, maxRunningPerUser } = this.#options;
    if (!isDaemon) {
      throw new SvcError(
        "not_possible",
        "cannot detach: no daemon is running that could continue the work; start one with svc daemon, or omit --detach",
      );
    }
    if (share === undefined) return;
    const all = [...this.#running.values()];
    const count = all.filter((running) => running.record.detached && running.share === share).length;
    if (count < maxRunningPerUser) return;
    throw new SvcError(
      "too_many",
      `cannot detach: ${count} detached operations of this user are running, and at most ${maxRunningPerUser} are allowed; wait for one to finish`,
    );
  }

  /** @throws SvcError `invalid_request` for an invalid page token */
  list(
    filter: OperationFilter,
    caller: OperationCaller,
  ): { records: OperationRecord[]; nextPageToken: string } {
    const running = [...this.#running.values()].map(({ record }) => record);
    const isListed = (record: OperationRecord): boolean => isVisible(record, caller);
    return this.#history.list(filter, caller, running.filter(isListed));
  }

  /** @throws SvcError `not_found` */
  get(id: string, caller: OperationCaller): OperationRecord {
    const record = this.#running.get(id)?.record ?? this.#history.get(id);
    if (record === undefined || !isVisible(record, caller)) throw notFound("operation", id);
    return record;
  }

  /**
   * Yields the lines after number `after`, and the operation after each change, until it has finished.
   * @throws SvcError `not_found`; the signal's reason
   */
  async *follow(
    id: string,
    after: number,
    caller: OperationCaller,
    signal: AbortSignal,
  ): AsyncGenerator<{ line: OperationLine } | { record: OperationRecord }> {
    const record = this.get(id, caller);
    for (let seen = after; ;) {
      const running = this.#running.get(id);
      const changed = running?.changed.promise;
      const isOver = record.state !== "RUNNING";
      for (const line of record.lines.filter(({ number }) => number > seen)) {
        yield { line };
        seen = line.number;
      }
      yield { record };
      // Stored as running, but run by another process.
      if (isOver || changed === undefined) return;
      await unlessAborted(changed, signal);
      if (this.#running.has(id)) await sleep(followEveryMs, undefined, { signal });
    }
  }

  /** Returns at once. @throws SvcError `not_found`; `not_possible` if the operation is not running */
  cancel(id: string, caller: OperationCaller): OperationRecord {
    const record = this.get(id, caller);
    const running = this.#running.get(id);
    if (running === undefined || record.state !== "RUNNING") {
      throw new SvcError("not_possible", `cannot cancel operation ${id}: its state is ${record.state}`);
    }
    running.controller.abort(new SvcError("canceled", "the operation was canceled"));
    return record;
  }

  #saveSoon(running: Running): void {
    running.saveTimer ??= setTimeout(() => {
      running.saveTimer = undefined;
      void this.#write([saveRecord(running.record)]);
    }, saveEveryMs).unref();
  }

  /** The work continues even if its record cannot be stored. */
  async #write(statements: readonly Statement[]): Promise<void> {
    if (!this.#options.isDaemon) return;
    try {
      await this.#options.store.write(statements, { essential: true });
    } catch (error) {
      this.#options.log.warn({ err: error }, "failed to store an operation");
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const all = Promise.all([...this.#running.values()].map(({ closed }) => closed.promise));
    const over = new AbortController();
    await Promise.race([
      all,
      sleep(shutdownGraceMs, undefined, { signal: over.signal }).catch(() => undefined),
    ]);
    over.abort();
    for (const { saveTimer } of this.#running.values()) clearTimeout(saveTimer);
  }
}

function wake(running: Running): void {
  running.changed.resolve(undefined);
  running.changed = Promise.withResolvers();
}

function isVisible({ ownerUid }: OperationRecord, { uid, root }: OperationCaller): boolean {
  return root || ownerUid === uid;
}
