/** Alert rules of the configuration, and whether each one applies now. */
import { diskPercent } from "../../lib/disk-share.ts";
import type { AppCounters } from "../../apps/records/app-counters.ts";
import type { HostMetrics } from "../../host/metrics/host-metrics.ts";

/** How an alert is delivered: an action like those of jobs. */
export type AlertAction =
  { readonly type: "shell"; readonly command: string } | { readonly type: "http"; readonly url: string };

export interface AlertRule {
  /** The rule's name in notifications. */
  readonly name: string;
  readonly when: AlertKind;
  /** `filesystem`: the mount point; undefined: every filesystem that holds data. */
  readonly path: string | undefined;
  /** `filesystem`: applies above this percentage. */
  readonly abovePercent: number;
  /** How long the condition must hold, or be over, before it is reported. */
  readonly forSecs: number;
  /** Undefined: the alert appears only in the status. */
  readonly action: AlertAction | undefined;
}

export const alertKinds = ["filesystem", "app_crashed", "backup_overdue"] as const;
export type AlertKind = (typeof alertKinds)[number];

/** The facts now. A fact is undefined if it is unknown, so that no alert is reported as over. */
export interface AlertFacts {
  readonly nowMs: number;
  readonly filesystems:
    | readonly { readonly path: string; readonly usedBytes: number; readonly availableBytes: number }[]
    | undefined;
  readonly apps: readonly AppFact[];
}

export interface AppFact {
  readonly id: string;
  readonly state: string;
  /** True if the backup policy says so. */
  readonly isBackupOverdue: boolean;
  /** When the newest backup was created, unix milliseconds; undefined if there is none. */
  readonly backedUpAtMs: number | undefined;
}

/** A subject that a rule applies to. */
export interface Finding {
  /** A mount point or an app ID. */
  readonly subject: string;
  readonly message: string;
}

const hourMs = 3_600_000;

/** @returns undefined if it is unknown */
export function findingsOf(rule: AlertRule, facts: AlertFacts): Finding[] | undefined {
  switch (rule.when) {
    case "filesystem":
      return facts.filesystems?.flatMap(({ path, usedBytes, availableBytes }) => {
        const percent = diskPercent({ usedBytes, availableBytes });
        if (percent <= rule.abovePercent || (rule.path !== undefined && rule.path !== path)) return [];
        return [{ subject: path, message: `the filesystem ${path} is ${percent.toFixed(1)} % full` }];
      });
    case "app_crashed":
      return facts.apps
        .filter(({ state }) => state === "CRASHED" || state === "FAILED")
        .map(({ id, state }) => ({ subject: id, message: `app "${id}" is ${state}` }));
    case "backup_overdue":
      return facts.apps
        .filter(({ isBackupOverdue }) => isBackupOverdue)
        .map(({ id, backedUpAtMs }) => ({
          subject: id,
          message: `the backup of app "${id}" is overdue: ${lastBackup(facts.nowMs, backedUpAtMs)}`,
        }));
  }
}

function lastBackup(nowMs: number, backedUpAtMs: number | undefined): string {
  if (backedUpAtMs === undefined) return "there is none yet";
  return `the last one was made ${Math.floor((nowMs - backedUpAtMs) / hourMs)} hours ago`;
}

export interface AlertFactSources {
  counters: Pick<AppCounters, "states" | "backupStates">;
  hostMetrics: Pick<HostMetrics, "readings">;
  now: () => number;
}

/** Collects the facts that alert rules are checked against. */
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
