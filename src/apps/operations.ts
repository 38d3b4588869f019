/**
 * One operation per app at a time, across the daemon and every CLI that works in-process: a row of `operations` with a
 * unique app id is the lock, and the process that it names is the lease (decisions 25).
 */
import { AppOperationKinds, type AppOperationKind } from "../../gen/svc/v1/words.ts";
import { SvcError, notFound } from "../errors.ts";
import type { Log } from "../lib/log.ts";
import { isExecutorAlive, type Executor } from "../store/executors.ts";
import {
  isFlag,
  isInstant,
  isName,
  isText,
  isWhole,
  listOf,
  maybe,
  oneOf,
  readDocument,
  type Fields,
} from "../store/row-document.ts";
import { RowReader, type RowKind } from "../store/row-reader.ts";
import { StoreConflict, type Statement, type Store } from "../store/store.ts";

/** An operation under way. */
export interface Operation {
  readonly id: number;
  readonly appId: string;
  readonly kind: AppOperationKind;
  /** How far it is: what recovery goes by. */
  phase: string;
  /** What recovery needs to know beside the phase. */
  readonly detail: OperationDetail;
  readonly executor: Executor;
  readonly startedAtMs: number;
  /** What the row has where it cannot be read: kind and detail are made up then. */
  readonly unreadable?: { readonly kind: string; readonly detail: string };
}

export interface OperationDetail {
  /** The uid that the app's files belong to, for an app that has no row any more. */
  runUid?: number;
  /** A clone's lock on its source: nothing to undo. */
  lockOnly?: boolean;
  /** The trees that a restore puts in place. */
  trees?: string[];
  /** The volumes of the engine that a restore puts in place. */
  volumes?: string[];
  /** Those of them of which is kept what they were. */
  kept?: string[];
  /** Whether the app ran when the restore or the upgrade began, or was to be started. */
  restart?: boolean;
  /** Whether an upgrade replaces what runs bit by bit. */
  rolls?: boolean;
  /** The next version is called as the one before: what is built for it takes the same names. */
  sameName?: boolean;
  /** Whether a removal waits for the container engine to be back. */
  awaitsEngine?: boolean;
  /** What a backup has frozen of the app, in its runtime's words. */
  frozen?: string[];
}

export interface BeginOptions {
  appId: string;
  kind: AppOperationKind;
  phase: string;
  detail?: OperationDetail;
  /** Written in the same transaction. */
  statements?: readonly Statement[];
  /** Has the work end before it is done; undefined where it cannot. */
  cancel?: (() => void) | undefined;
}

/** A row of `operations` as SQLite answers it. */
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
  runUid: maybe(isWhole),
  ...{ lockOnly: maybe(isFlag), restart: maybe(isFlag), rolls: maybe(isFlag) },
  ...{ sameName: maybe(isFlag), awaitsEngine: maybe(isFlag) },
  ...{ trees: maybe(listOf(isText)), volumes: maybe(listOf(isText)) },
  ...{ kept: maybe(listOf(isText)), frozen: maybe(listOf(isText)) },
};

const columns: Fields<OperationRow> = {
  ...{ id: isWhole, app_id: isName, kind: oneOf(AppOperationKinds), phase: isText, detail: isText },
  ...{ boot_id: isText, pid: isWhole, start_ticks: isWhole, started_at: isInstant },
};

export const operationRows: RowKind<OperationRow, Operation> = {
  table: "operations",
  columns,
  nameOf: ({ app_id, kind }) => `what is under way with app "${app_id}" (${kind})`,
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

/** Reads operations; of one that cannot be read is known who executes it, and nothing that could be gone by. */
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
  /** Brings an app to rest whose operation died with its process; ends that operation. */
  recover: (operation: Operation) => Promise<void>;
  /** Called when an operation of this process has taken its app's lock. */
  began?: (operation: Operation) => void;
  /** Called when an operation of this process has given it back. */
  ended?: (operation: Operation) => void;
}

export class Operations {
  readonly #options: OperationsOptions;
  /** The registry says of them what cannot be read. */
  readonly #reader = new OperationReader();
  /**
   * By id, the operations that this process really executes, and how each is canceled: a row of ours that is not among them
   * was left behind.
   */
  readonly #live = new Map<number, (() => void) | undefined>();
  #isLeaving = false;

  constructor(options: OperationsOptions) {
    this.#options = options;
  }

  /** This process ends: what it does not bring to its end is left to the next one. */
  leave(): void {
    this.#isLeaving = true;
  }

  get isLeaving(): boolean {
    return this.#isLeaving;
  }

  /** All operations that the store knows, live or left behind. */
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
   * Takes the app's lock. An operation whose process is gone is recovered first.
   * @throws SvcError `app_busy` while another operation is live, `not_found` when a statement of `statements` changes a
   *   row that is gone; StoreConflict when it adds one that is there.
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
          essential: freesRoom.has(kind),
        });
        const id = Number(inserted?.rows?.[0]?.["id"]);
        this.#live.set(id, cancel);
        const operation = { id, appId, kind, phase, detail, executor: this.#options.executor, startedAtMs };
        this.#options.began?.(operation);
        return operation;
      } catch (error) {
        if (!(error instanceof StoreConflict)) throw error;
        if (error.statementIndex > 0) throw error.reason === "changes" ? notFound("app", appId) : error;
        const holder = this.of(appId);
        // It ended in this very moment.
        if (holder === undefined && attempt <= maxAttempts) continue;
        if (holder === undefined) throw error;
        if (attempt > maxAttempts || (await this.isLive(holder))) throw busy(holder);
        await this.#options.recover(holder);
      }
    }
  }

  /**
   * Does `work` under the app's lock, which is given back with what the work wants written, or with nothing when it throws.
   * @throws SvcError as {@link begin}; what the work throws
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
   * Has what holds an app end before it is done; whether it still can is its own affair.
   * @throws SvcError `not_possible`
   */
  cancel(appId: string): void {
    const operation = this.of(appId);
    if (operation === undefined)
      throw new SvcError("not_possible", `nothing is under way with app "${appId}"`);
    const cancel = this.#live.get(operation.id);
    if (cancel === undefined) {
      throw new SvcError(
        "not_possible",
        `app "${appId}" is ${doing[operation.kind]}, which cannot be canceled`,
      );
    }
    cancel();
  }

  /** Whether somebody still executes it. */
  async isLive(operation: Operation): Promise<boolean> {
    const { bootId, pid, startTicks } = operation.executor;
    const own = this.#options.executor;
    if (pid === own.pid && startTicks === own.startTicks && bootId === own.bootId) {
      return this.#live.has(operation.id);
    }
    return isExecutorAlive(operation.executor);
  }

  /** Records how far it is and its detail, with what belongs to that point, in one transaction. */
  async enter(operation: Operation, phase: string, statements: readonly Statement[] = []): Promise<void> {
    await this.#options.store.write(
      [
        {
          sql: "UPDATE operations SET phase = ?, detail = ? WHERE id = ?",
          params: [phase, JSON.stringify(operation.detail), operation.id],
          changes: 1,
        },
        ...statements,
      ],
      { essential: true },
    );
    operation.phase = phase;
  }

  /** Gives the lock back, with the outcome in the same transaction. */
  async end(operation: Operation, statements: readonly Statement[] = []): Promise<void> {
    try {
      await this.#options.store.write([...statements, endOperation(operation)], { essential: true });
    } finally {
      // If the write failed, the row is left behind and whoever wants the app next recovers it.
      this.#live.delete(operation.id);
      this.#options.ended?.(operation);
    }
  }

  /** Takes a row over that its process left behind, so that nobody else recovers it too. False: somebody was quicker. */
  async adopt(operation: Operation): Promise<boolean> {
    const { executor } = operation;
    const { bootId, pid, startTicks } = this.#options.executor;
    const [adopted] = await this.#options.store.write(
      [
        {
          sql: `UPDATE operations SET boot_id = ?, pid = ?, start_ticks = ?
                WHERE id = ? AND boot_id = ? AND pid = ? AND start_ticks = ?`,
          params: [bootId, pid, startTicks, operation.id, executor.bootId, executor.pid, executor.startTicks],
        },
      ],
      { essential: true },
    );
    if (adopted?.changes !== 1 || this.#live.has(operation.id)) return false;
    this.#live.set(operation.id, undefined);
    return true;
  }

  /** Lets go of an adopted operation that could not be ended: the next sweep may try again. */
  release(operation: Operation): void {
    this.#live.delete(operation.id);
  }
}

function endOperation(operation: Operation): Statement {
  return { sql: "DELETE FROM operations WHERE id = ?", params: [operation.id] };
}

/** How often a lock is tried that others end or leave behind in the same moment. */
const maxAttempts = 3;

/** What must be possible on a full disk too. */
const freesRoom: ReadonlySet<AppOperationKind> = new Set(["stop", "remove"]);

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
  repull: "getting its image afresh",
  backup: "being backed up",
};

function busy(operation: Operation) {
  return new SvcError(
    "app_busy",
    `app "${operation.appId}" is ${doing[operation.kind]}; try again when that has ended`,
  );
}
