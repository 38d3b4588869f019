/** Counts apps by state; recounts only after a change. */
import { AppStates, type AppState } from "../../../gen/svc/v1/values.ts";
import { revisionOf } from "../../runtimes/contract.ts";
import type { AppFinder } from "./app-finder.ts";
import type { AppRecord } from "./app-record.ts";
import { shownState, stateOf, type AppBackupState } from "./app-view.ts";
import type { AppBackupStates } from "./app-views.ts";
import type { AppCaller } from "./app-registry.ts";
import type { AppsContext } from "../apps-context.ts";
import type { FoundUpdates } from "./found-updates.ts";

export interface AppCountersOptions extends Pick<AppsContext, "registry" | "runtimes" | "runtimeOf"> {
  finder: Pick<AppFinder, "untilSettled">;
  backups: AppBackupStates;
  updates: Pick<FoundUpdates, "revision" | "of">;
}

export type AppCounts = Readonly<
  Record<"total" | "unhealthy" | "backupsOverdue" | "outdated" | Counter, number>
>;

type Counter = "running" | "stopped" | "failed" | "busy" | "unknown";

/** Maximum number of callers whose counts are cached. */
const maxCallers = 64;

export class AppCounters {
  readonly #options: AppCountersOptions;
  /** By caller, as callers see different apps. */
  readonly #counts = new Map<string, AppCounts>();
  /** The revisions at the time of the count. */
  #revisions = "";

  constructor(options: AppCountersOptions) {
    this.#options = options;
  }

  /** Counts of the apps that the caller may see. */
  async of(caller: AppCaller): Promise<AppCounts> {
    await this.#options.finder.untilSettled();
    this.#forgetOld();
    const key = caller.root ? "root" : String(caller.uid);
    let counts = this.#counts.get(key);
    if (counts === undefined) {
      if (this.#counts.size >= maxCallers) this.#counts.clear();
      counts = this.#count(this.#options.registry.visible(caller));
      this.#counts.set(key, counts);
    }
    return counts;
  }

  /** Counts of all apps; contains every state. */
  async byState(): Promise<Map<AppState, number>> {
    const { finder, registry } = this.#options;
    await finder.untilSettled();
    const counts = new Map<AppState, number>(AppStates.map((state) => [state, 0]));
    for (const app of registry.all()) {
      const state = this.#stateOf(app);
      counts.set(state, (counts.get(state) ?? 0) + 1);
    }
    return counts;
  }

  /** The state of every app, by id. */
  async states(): Promise<ReadonlyMap<string, AppState>> {
    const { finder, registry } = this.#options;
    await finder.untilSettled();
    return new Map(registry.all().map((app) => [app.id, this.#stateOf(app)]));
  }

  /** The backup state of every app, by ID; undefined if there is none. */
  backupStates(): ReadonlyMap<string, AppBackupState | undefined> {
    const { registry, backups } = this.#options;
    return new Map(registry.all().map((app) => [app.id, backups.of(app)]));
  }

  #stateOf(app: AppRecord): AppState {
    const { registry, runtimeOf } = this.#options;
    return stateOf(app, registry.operationOf(app.id), runtimeOf(app).status(app.id)).state;
  }

  #forgetOld(): void {
    const { registry, runtimes, backups, updates } = this.#options;
    const revisions = [registry.revision, revisionOf(runtimes), backups.revision, updates.revision].join();
    if (revisions === this.#revisions) return;
    this.#counts.clear();
    this.#revisions = revisions;
  }

  #count(apps: readonly AppRecord[]): AppCounts {
    const states = { running: 0, stopped: 0, failed: 0, busy: 0, unknown: 0 };
    const counts = { total: 0, ...states, unhealthy: 0, backupsOverdue: 0, outdated: 0 };
    for (const app of apps) {
      counts.total++;
      const state = this.#stateOf(app);
      counts[counterOf[state]]++;
      const health = this.#options.runtimeOf(app).status(app.id)?.health;
      if (shownState(state, health) === "UNHEALTHY") counts.unhealthy++;
      if (this.#options.backups.of(app)?.overdue === true) counts.backupsOverdue++;
      if (this.#options.updates.of(app) !== undefined) counts.outdated++;
    }
    return counts;
  }
}

const counterOf = {
  RUNNING: "running",
  STOPPED: "stopped",
  FAILED: "failed",
  CRASHED: "failed",
  INSTALLING: "busy",
  STARTING: "busy",
  STOPPING: "busy",
  UPGRADING: "busy",
  RESTORING: "busy",
  REMOVING: "busy",
  UNKNOWN: "unknown",
} as const satisfies Record<AppState, Counter>;
