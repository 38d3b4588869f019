/**
 * Allows one operation per app at a time, across the daemon and every in-process CLI. A row of `operations` with a unique app ID is
 * the lock; the process that it names holds the lease.
 */
import { AppOperationKinds, type AppOperationKind } from "../../../gen/svc/v1/values.ts";
import { SvcError, notFound } from "../../errors.ts";
import type { Log } from "../../lib/log.ts";
import { SetOnce } from "../../lib/set-once.ts";
import { isExecutorAlive, type Executor } from "../../store/executors.ts";
import {
  isFlag,
  isInstant,
  isName,
  isText,
  isInteger,
  listOf,
  maybe,
  oneOf,
  readDocument,
  type Fields,
} from "../../store/row-document.ts";
import { RowReader, type RowKind } from "../../store/row-reader.ts";
import { StoreConflict, type Statement, type Store } from "../../store/store.ts";

/** A running operation. */
export interface Operation {
  readonly id: number;
  readonly appId: string;
  kind: AppOperationKind;
  /** The phase, which decides about recovery. */
  phase: string;
  /** Further values for recovery. */
  readonly detail: OperationDetail;
  readonly executor: Executor;
  readonly startedAtMs: number;
  /** Set if the row cannot be read; kind and detail are placeholders then. */
  readonly unreadable?: { readonly kind: string; readonly detail: string };
}

export interface OperationDetail {
  /** The uid of the app's files, for an app whose row was removed. */
  runUid?: number;
  /** Whether its start failed because a port of the app is in use. */
  portInUse?: boolean;
  /** A clone's lock on its source: nothing to undo. */
  lockOnly?: boolean;
  /** The trees that a restore swaps. */
  trees?: string[];
  /** The engine volumes that a restore swaps. */
  volumes?: string[];
  /** The trees and volumes whose previous content is stored. */
  kept?: string[];
  /** Whether the app ran, or was about to be started, when the restore or upgrade started. */
  restart?: boolean;
  /** Whether an upgrade is rolling. */
  rolls?: boolean;
  /** True if both versions have the same name, so that their images do, too. */
  sameName?: boolean;
  /** Whether a removal waits for the container engine. */
  awaitsEngine?: boolean;
  /** IDs of the containers that an adoption replaces. */
  containers?: string[];
  /** IDs of the replaced containers that ran before the adoption. */
  running?: string[];
  /** Whether an adoption removes these containers at its end. */
  removesOld?: boolean;
  /** The parts that a backup has frozen, as the runtime names them. */
  frozen?: string[];
}

export interface BeginOptions {
  appId: string;
  kind: AppOperationKind;
  phase: string;
  detail?: OperationDetail;
  /** Written in the same transaction. */
  statements?: readonly Statement[];
  /** Cancels the work; undefined if it cannot be canceled. */
  cancel?: (() => void) | undefined;
}

/** A row of `operations` as SQLite returns it. */
export interface OperationRow {
  id: number;
  app_id: string;
  kind: string;
  phase: string;
  detail: string;
  boot_id: string;
  pid: number;
  start_ticks: number;
  started_at: number;
}

const detailFields: Fields<OperationDetail> = {
  runUid: maybe(isInteger),
  ...{ portInUse: maybe(isFlag), lockOnly: maybe(isFlag), restart: maybe(isFlag), rolls: maybe(isFlag) },
  ...{ sameName: maybe(isFlag), awaitsEngine: maybe(isFlag), removesOld: maybe(isFlag) },
  ...{ containers: maybe(listOf(isText)), running: maybe(listOf(isText)) },
  ...{ trees: maybe(listOf(isText)), volumes: maybe(listOf(isText)) },
  ...{ kept: maybe(listOf(isText)), frozen: maybe(listOf(isText)) },
};

const columns: Fields<OperationRow> = {
  ...{ id: isInteger, app_id: isName, kind: oneOf(AppOperationKinds), phase: isText, detail: isText },
  ...{ boot_id: isText, pid: isInteger, start_ticks: isInteger, started_at: isInstant },
};

export const operationRows: RowKind<OperationRow, Operation> = {
  table: "operations",
  columns,
  nameOf: ({ app_id, kind }) => `the operation in progress on app "${app_id}" (${kind})`,
  remedy: () => "restart the daemon, which gives the app back as it is",
  read: (row) => ({
    ...commonOf(row),
    kind: row.kind as AppOperationKind,
    detail: readDocument<OperationDetail>(row.detail, detailFields),
    startedAtMs: row.started_at,
  }),
};

function commonOf(row: OperationRow) {
  const executor = { bootId: row.boot_id, pid: row.pid, startTicks: row.start_ticks };
  return { id: row.id, appId: row.app_id, phase: row.phase, executor };
}

/** Reads operations. For an unreadable row only its executor is known. */
export class OperationReader {
  readonly #reader: RowReader<OperationRow, Operation>;

  constructor(log?: Pick<Log, "error">) {
    this.#reader = new RowReader(operationRows, log);
  }

  read(row: OperationRow): Operation {
    return (
      this.#reader.read(row) ?? {
        ...commonOf(row),
        kind: "settings",
        detail: {},
        startedAtMs: isInstant(row.started_at) ? row.started_at : 0,
        unreadable: { kind: row.kind, detail: row.detail },
      }
    );
  }
}

export interface OperationsOptions {
  store: Store;
  executor: Executor;
  now: () => number;
}

export interface OperationListener {
  /** Called when an operation of this process has taken its app's lock. */
  began(operation: Operation): void;
  /** Called when an operation of this process has given the lock back. */
  ended(operation: Operation): void;
}

interface LiveOperation {
  /** Undefined while it cannot be canceled. */
  cancel: (() => void) | undefined;
  readonly ended: PromiseWithResolvers<undefined>;
}

export class Operations {
  readonly #options: OperationsOptions;
  /** Set once. Recovers an app whose operation was interrupted by the end of its process, and ends the operation. */
  readonly recovery = new SetOnce<(operation: Operation) => Promise<void>>("the recovery of operations");
  readonly #listeners: OperationListener[] = [];
  /** The registry reports unreadable rows. */
  readonly #reader = new OperationReader();
  /** By ID, the operations that this process executes. A row with this executor that is not listed was interrupted. */
  readonly #live = new Map<number, LiveOperation>();
  #isLeaving = false;

  constructor(options: OperationsOptions) {
    this.#options = options;
  }

  listen(listener: OperationListener): void {
    this.#listeners.push(listener);
  }

  /** Called when this process stops: the next process resumes unfinished operations. */
  leave(): void {
    this.#isLeaving = true;
  }

  get isLeaving(): boolean {
    return this.#isLeaving;
  }

  /** All operations in the store, live or interrupted. */
  all(): Operation[] {
    return this.#options.store
      .all<OperationRow>("SELECT * FROM operations")
      .map((row) => this.#reader.read(row));
  }

  of(appId: string): Operation | undefined {
    const row = this.#options.store.get<OperationRow>("SELECT * FROM operations WHERE app_id = ?", appId);
    return row === undefined ? undefined : this.#reader.read(row);
  }

  /**
   * Takes the app's lock. An interrupted operation is recovered first.
   * @throws SvcError `app_busy` while another operation is live; `not_found` if a statement of `statements` changes a removed row;
   *   StoreConflict if it adds an existing row.
   */
  async begin(options: BeginOptions): Promise<Operation> {
    const { appId, kind, phase, detail = {}, statements = [], cancel } = options;
    const startedAtMs = this.#options.now();
    const { bootId, pid, startTicks } = this.#options.executor;
    const insert: Statement = {
      sql: `INSERT INTO operations (app_id, kind, phase, detail, boot_id, pid, start_ticks, started_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`,
      params: [appId, kind, phase, JSON.stringify(detail), bootId, pid, startTicks, startedAtMs],
    };
    for (let attempt = 1; ; attempt++) {
      try {
        const [inserted] = await this.#options.store.write([insert, ...statements], {
          essential: freesSpace.has(kind),
        });
        const id = Number(inserted?.rows?.[0]?.["id"]);
        this.#live.set(id, { cancel, ended: Promise.withResolvers() });
        const operation = { id, appId, kind, phase, detail, executor: this.#options.executor, startedAtMs };
        for (const listener of this.#listeners) listener.began(operation);
        return operation;
      } catch (error) {
        if (!(error instanceof StoreConflict)) throw error;
        if (error.statementIndex > 0) throw error.reason === "changes" ? notFound("app", appId) : error;
        const holder = this.of(appId);
        // The operation that held the lock ended at the same moment.
        if (holder === undefined && attempt <= maxAttempts) continue;
        if (holder === undefined) throw error;
        if (await this.#endStart(holder, kind)) continue;
        if (attempt > maxAttempts || (await this.isLive(holder))) throw busy(holder);
        await this.recovery.get()(holder);
      }
    }
  }

  /** Cancels a start that blocks a stop or a removal. False: `holder` is not such a start. */
  async #endStart(holder: Operation, kind: AppOperationKind): Promise<boolean> {
    const live = this.#live.get(holder.id);
    if (!freesSpace.has(kind) || !startsApp.has(holder.kind) || live?.cancel === undefined) return false;
    live.cancel();
    await live.ended.promise;
    return true;
  }

  /** Makes {@link cancel} call `cancel` until disposal. */
  cancelWith(operation: Operation, cancel: () => void): Disposable {
    const live = this.#live.get(operation.id);
    if (live === undefined) return { [Symbol.dispose]: () => undefined };
    const before = live.cancel;
    live.cancel = cancel;
    return { [Symbol.dispose]: () => void (live.cancel = before) };
  }

  /**
   * Runs `work` under the app's lock. The lock is released together with the statements that the work returns, or without any if it throws.
   * @throws SvcError as {@link begin}; errors of the work
   */
  async during(options: BeginOptions, work: (operation: Operation) => Promise<Statement>): Promise<void> {
    const operation = await this.begin(options);
    try {
      await this.end(operation, [await work(operation)]);
    } catch (error) {
      await this.end(operation);
      throw error;
    }
  }

  /**
   * Cancels the operation of an app, if it can still be canceled.
   * @throws SvcError `not_possible`
   */
  cancel(appId: string): void {
    const operation = this.of(appId);
    if (operation === undefined)
      throw new SvcError("not_possible", `app "${appId}" has no operation in progress`);
    const cancel = this.#live.get(operation.id)?.cancel;
    if (cancel === undefined) {
      throw new SvcError(
        "not_possible",
        `app "${appId}" is ${doing[operation.kind]}, which cannot be canceled`,
      );
    }
    cancel();
  }

  /** Whether a live process executes it. */
  async isLive(operation: Operation): Promise<boolean> {
    const { bootId, pid, startTicks } = operation.executor;
    const own = this.#options.executor;
    if (pid === own.pid && startTicks === own.startTicks && bootId === own.bootId) {
      return this.#live.has(operation.id);
    }
    return isExecutorAlive(operation.executor);
  }

  /**
   * Records phase and detail together with the statements of that phase, in one transaction.
   * @param kind another kind, which recovery treats differently
   */
  async enter(
    operation: Operation,
    phase: string,
    statements: readonly Statement[] = [],
    kind: AppOperationKind = operation.kind,
  ): Promise<void> {
    await this.#options.store.write(
      [
        {
          sql: "UPDATE operations SET kind = ?, phase = ?, detail = ? WHERE id = ?",
          params: [kind, phase, JSON.stringify(operation.detail), operation.id],
          changes: 1,
        },
        ...statements,
      ],
      { essential: true },
    );
    operation.phase = phase;
    operation.kind = kind;
  }

  /** Releases the lock and writes the result, in one transaction. */
  async end(operation: Operation, statements: readonly Statement[] = []): Promise<void> {
    try {
      await this.#options.store.write([...statements, endOperation(operation)], { essential: true });
    } finally {
      // If the write failed, the row stays, and the next operation on the app recovers it.
      this.release(operation);
      for (const listener of this.#listeners) listener.ended(operation);
    }
  }

  /** Takes over an interrupted operation, so that only one process recovers it. False: another process was faster. */
  async takeOver(operation: Operation): Promise<boolean> {
    const { executor } = operation;
    const { bootId, pid, startTicks } = this.#options.executor;
    const [takenOver] = await this.#options.store.write(
      [
        {
          sql: `UPDATE operations SET boot_id = ?, pid = ?, start_ticks = ?
                WHERE id = ? AND boot_id = ? AND pid = ? AND start_ticks = ?`,
          params: [bootId, pid, startTicks, operation.id, executor.bootId, executor.pid, executor.startTicks],
        },
      ],
      { essential: true },
    );
    if (takenOver?.changes !== 1 || this.#live.has(operation.id)) return false;
    this.#live.set(operation.id, { cancel: undefined, ended: Promise.withResolvers() });
    return true;
  }

  /** Releases an operation that was taken over but could not be ended, so that the next sweep can try again. */
  release(operation: Operation): void {
    this.#live.get(operation.id)?.ended.resolve(undefined);
    this.#live.delete(operation.id);
  }
}

function endOperation(operation: Operation): Statement {
  return { sql: "DELETE FROM operations WHERE id = ?", params: [operation.id] };
}

/** Maximum tries for a lock that others release or abandon at the same moment. */
const maxAttempts = 3;

/** Kinds that must also work on a full disk. */
const freesSpace: ReadonlySet<AppOperationKind> = new Set(["stop", "remove"]);

/** Kinds that a stop or a removal cancels. */
const startsApp: ReadonlySet<AppOperationKind> = new Set(["start", "restart"]);

const doing: Record<AppOperationKind, string> = {
  install: "being installed",
  upgrade: "being upgraded",
  clone: "being cloned",
  remove: "being removed",
  start: "being started",
  stop: "being stopped",
  restart: "being restarted",
  settings: "getting new settings",
  restore: "being restored",
  repull: "pulling its image again",
  backup: "being backed up",
  adopt: "being adopted",
};

function busy(operation: Operation) {
  return new SvcError(
    "app_busy",
    `app "${operation.appId}" is ${doing[operation.kind]}; try again when that has ended`,
  );
}
