/** How many apps are in which state, counted again only when one of them has changed. */
import { AppStates, type AppState } from "../../gen/svc/v1/words.ts";
import { revisionOf } from "../runtimes/runtime.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppBackupStates } from "./app-views.ts";
import type { AppCaller } from "./app-registry.ts";
import type { AppsContext } from "./apps-context.ts";
import type { FoundUpdates } from "./found-updates.ts";

export interface AppCountersOptions extends Pick<AppsContext, "registry" | "runtimes"> {
  backups: AppBackupStates;
  updates: Pick<FoundUpdates, "revision" | "of">;
  stateOf: (app: AppRecord) => AppState;
}

/** Frozen, and the same object for as long as nothing has changed. */
export type AppCounts = Readonly<Record<"total" | "backupsOverdue" | "outdated" | Counter, number>>;

type Counter = "running" | "stopped" | "failed" | "busy" | "unknown";

/** Callers whose counts are kept. */
const maxCallers = 64;

export class AppCounters {
  readonly #options: AppCountersOptions;
  /** By who sees which apps. */
  readonly #counts = new Map<string, AppCounts>();
  /** What they go by, as it was when they were counted. */
  #revisions = "";

  constructor(options: AppCountersOptions) {
    this.#options = options;
  }

  /** Of the apps that the caller may see. */
  of(caller: AppCaller): AppCounts {
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

  /** Of all apps; every state is there. */
  byState(): Map<AppState, number> {
    const { registry, stateOf } = this.#options;
    const counts = new Map<AppState, number>(AppStates.map((state) => [state, 0]));
    for (const app of registry.all()) {
      const state = stateOf(app);
      counts.set(state, (counts.get(state) ?? 0) + 1);
    }
    return counts;
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
    const counts = { total: 0, ...states, backupsOverdue: 0, outdated: 0 };
    for (const app of apps) {
      counts.total++;
      counts[counterOf[this.#options.stateOf(app)]]++;
      if (this.#options.backups.of(app)?.overdue === true) counts.backupsOverdue++;
      if (this.#options.updates.of(app) !== undefined) counts.outdated++;
    }
    return Object.freeze(counts);
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
