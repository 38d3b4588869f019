/** What alerts are decided by, from those who know it. */
import type { Apps } from "../apps/apps.ts";
import type { HostMetrics } from "../host/host-metrics.ts";
import type { AlertFacts } from "./alert-rules.ts";

export interface AlertFactSources {
  apps: Pick<Apps, "states" | "backupStates">;
  hostMetrics: Pick<HostMetrics, "readings">;
  now: () => number;
}

export async function readAlertFacts({ apps, hostMetrics, now }: AlertFactSources): Promise<AlertFacts> {
  const states = await apps.states();
  return {
    nowMs: now(),
    filesystems: hostMetrics.readings()?.sample.filesystems,
    apps: Array.from(apps.backupStates(), ([id, backup]) => ({
      id,
      state: states.get(id) ?? "UNKNOWN",
      isBackupOverdue: backup?.overdue === true,
      backedUpAtMs: backup?.lastBackupAtMs,
    })),
  };
}
