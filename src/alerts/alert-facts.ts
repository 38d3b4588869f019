/** What alerts are decided by, from those who know it. */
import type { Apps } from "../apps/apps.ts";
import type { HostMetrics } from "../host/host-metrics.ts";
import type { Store } from "../store/store.ts";
import type { AlertFacts, AppFact } from "./alert-rules.ts";

export interface AlertFactsOptions {
  store: Pick<Store, "all">;
  apps: Pick<Apps, "states" | "backupFacts">;
  hostMetrics: Pick<HostMetrics, "readings">;
  now: () => number;
}

interface BackupRow {
  app_id: string;
  last_backup_at: number | null;
}

export class AlertFactsReader {
  readonly #options: AlertFactsOptions;

  constructor(options: AlertFactsOptions) {
    this.#options = options;
  }

  async read(): Promise<AlertFacts> {
    const { store, apps, hostMetrics, now } = this.#options;
    const rows = store.all<BackupRow>("SELECT app_id, last_backup_at FROM backup_policies");
    const backedUp = new Map(rows.map(({ app_id, last_backup_at }) => [app_id, last_backup_at]));
    const facts = apps.backupFacts();
    const states = await apps.states();
    return {
      nowMs: now(),
      filesystems: hostMetrics.readings()?.sample.filesystems,
      apps: facts.map(({ id, createdAtMs, hasPolicy }): AppFact => {
        const state = states.get(id) ?? "UNKNOWN";
        // One that was backed up once is to be backed up again.
        return { id, state, createdAtMs, backedUpAtMs: backedUp.get(id) ?? (hasPolicy ? null : undefined) };
      }),
    };
  }
}
