/** Collects the facts that alert rules are checked against. */
import type { AppCounters } from "../../apps/records/app-counters.ts";
import type { HostMetrics } from "../../host/metrics/host-metrics.ts";
import type { AlertFacts } from "./alert-rules.ts";

export interface AlertFactSources {
  counters: Pick<AppCounters, "states" | "backupStates">;
  hostMetrics: Pick<HostMetrics, "readings">;
  now: () => number;
}

export async function readAlertFacts({ counters, hostMetrics, now }: AlertFactSources): Promise<AlertFacts> {
  const states = await counters.states();
  return {
    nowMs: now(),
    filesystems: hostMetrics.readings()?.sample.filesystems,
    apps: Array.from(counters.backupStates(), ([id, backup]) => ({
      id,
      state: states.get(id) ?? "UNKNOWN",
      isBackupOverdue: backup?.overdue === true,
      backedUpAtMs: backup?.lastBackupAtMs,
    })),
  };
}
