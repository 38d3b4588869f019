/** Reports changes of apps: of their records, their operations and their runtime status. */
import type { AppState } from "../../../gen/svc/v1/values.ts";
import type { AppFinder } from "./app-finder.ts";
import type { AppRecord } from "./app-record.ts";
import { stateOf } from "./app-view.ts";
import type { AppsContext } from "../apps-context.ts";
import type { RuntimeStatus } from "../../runtimes/runtime-status.ts";
import type { Operation } from "../lifecycle/operations.ts";

/** The state of an app at one moment. */
export interface AppSnapshot {
  /** The same object until the record is written. */
  readonly record: AppRecord;
  readonly operation: Operation | undefined;
  readonly state: AppState;
  readonly reason: string;
  readonly health: "none" | "starting" | "healthy" | "unhealthy";
  readonly healthReason: string;
  /** On a swarm; the same array until the tasks change. */
  readonly tasks: RuntimeStatus["tasks"];
}

export interface AppChange {
  /** Absent for a new app. */
  readonly before: AppSnapshot | undefined;
  /** Absent for a removed app. */
  readonly now: AppSnapshot | undefined;
}

export interface AppChangesOptions extends AppsContext {
  finder: Pick<AppFinder, "untilSettled">;
}

export class AppChanges implements Disposable {
  readonly #options: AppChangesOptions;
  readonly #listeners = new Set<(change: AppChange) => void>();
  readonly #subscriptions: Disposable[] = [];
  /** Apps with a status event since the last comparison. */
  readonly #marked = new Set<string>();
  #seen = new Map<string, AppSnapshot>();
  #revision = -1;
  #check: NodeJS.Immediate | undefined;

  constructor(options: AppChangesOptions) {
    this.#options = options;
  }

  /**
   * Calls `listener` soon after each change, one call at a time; simultaneous changes of one app are merged. Starts when all apps
   * are reattached.
   */
  async listen(listener: (change: AppChange) => void): Promise<Disposable> {
    await this.#options.finder.untilSettled();
    if (this.#listeners.size === 0) this.#begin();
    this.#listeners.add(listener);
    return {
      [Symbol.dispose]: () => {
        this.#listeners.delete(listener);
        if (this.#listeners.size === 0) this[Symbol.dispose]();
      },
    };
  }

  #begin(): void {
    const { store, registry, runtimes } = this.#options;
    this.#revision = registry.revision;
    this.#seen = new Map(registry.all().map((app) => [app.id, this.#snapshotOf(app)]));
    const mark = (id: string): void => {
      this.#marked.add(id);
      this.#checkSoon();
    };
    for (const runtime of runtimes) this.#subscriptions.push(runtime.onChange(mark));
    this.#subscriptions.push(store.onChange(() => this.#checkSoon()));
  }

  #checkSoon(): void {
    this.#check ??= setImmediate(() => {
      this.#check = undefined;
      this.#compare();
    });
  }

  #compare(): void {
    const { registry } = this.#options;
    const ids = new Set(this.#marked);
    this.#marked.clear();
    if (registry.revision !== this.#revision) {
      this.#revision = registry.revision;
      const apps = registry.all();
      // Most apps have the same record and operation as before.
      for (const record of apps) {
        const seen = this.#seen.get(record.id);
        if (seen?.record !== record || seen.operation !== registry.operationOf(record.id)) ids.add(record.id);
      }
      const existing = new Set(apps.map(({ id }) => id));
      for (const id of this.#seen.keys()) if (!existing.has(id)) ids.add(id);
    }
    for (const id of ids) this.#compareApp(id);
  }

  #compareApp(id: string): void {
    const record = this.#options.registry.get(id);
    const before = this.#seen.get(id);
    // A later app with that ID is a different app.
    if (before !== undefined && record?.createdAtMs !== before.record.createdAtMs) {
      this.#seen.delete(id);
      this.#notify({ before, now: undefined });
    }
    if (record === undefined) return;
    const now = this.#snapshotOf(record);
    const known = this.#seen.get(id);
    this.#seen.set(id, now);
    this.#notify({ before: known, now });
  }

  #snapshotOf(record: AppRecord): AppSnapshot {
    const { registry, runtimeOf } = this.#options;
    const operation = registry.operationOf(record.id);
    const status = runtimeOf(record).status(record.id);
    return {
      ...{ record, operation },
      ...stateOf(record, operation, status),
      health: status?.health ?? "none",
      healthReason: status?.healthReason ?? "",
      tasks: status?.tasks,
    };
  }

  #notify(change: AppChange): void {
    for (const listener of [...this.#listeners]) listener(change);
  }

  [Symbol.dispose](): void {
    if (this.#check !== undefined) clearImmediate(this.#check);
    this.#check = undefined;
    for (const subscription of this.#subscriptions.splice(0)) subscription[Symbol.dispose]();
    this.#listeners.clear();
  }
}
