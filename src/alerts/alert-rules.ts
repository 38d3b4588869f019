/** What an operator wants to hear of, as the configuration says it, and whether it is so. */
import { diskPercent } from "../lib/disk-share.ts";

/** Where an alert goes: an action of the scheduler's own kind. */
export type AlertAction =
  { readonly type: "shell"; readonly command: string } | { readonly type: "http"; readonly url: string };

export interface AlertRule {
  /** What its notifications call it. */
  readonly name: string;
  readonly when: AlertKind;
  /** `filesystem`: where it is mounted; undefined: each that holds data. */
  readonly path: string | undefined;
  /** `filesystem`: full beyond this. */
  readonly abovePercent: number;
  /** How long it must be so, and not be so any more, before it is said. */
  readonly forSecs: number;
  /** Undefined: it shows in the status alone. */
  readonly action: AlertAction | undefined;
}

export const alertKinds = ["filesystem", "app_crashed", "backup_overdue"] as const;
export type AlertKind = (typeof alertKinds)[number];

/** What is known now; undefined where that cannot be told, so that nothing is said to be over. */
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
  /** By its policy. */
  readonly isBackupOverdue: boolean;
  /** When its newest backup was made, unix milliseconds; undefined when there is none. */
  readonly backedUpAtMs: number | undefined;
}

/** Something that a rule is about and that is so. */
export interface Finding {
  /** A mount point or the id of an app. */
  readonly subject: string;
  readonly message: string;
}

const hourMs = 3_600_000;

/** @returns undefined when it cannot be told */
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
