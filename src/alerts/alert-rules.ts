/** What an operator wants to hear of, as the configuration says it, and whether it is so. */

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
  /** `backup_overdue`: the newest one is older. */
  readonly afterHours: number;
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
    | readonly { readonly path: string; readonly sizeBytes: number; readonly availableBytes: number }[]
    | undefined;
  readonly apps: readonly AppFact[];
}

export interface AppFact {
  readonly id: string;
  readonly state: string;
  /** When its newest backup was made, unix milliseconds; null: there is none yet; undefined: it is not to have any. */
  readonly backedUpAtMs: number | null | undefined;
  readonly createdAtMs: number;
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
      return facts.filesystems?.flatMap(({ path, sizeBytes, availableBytes }) => {
        const percent = 100 - (availableBytes * 100) / sizeBytes;
        if (percent <= rule.abovePercent || (rule.path !== undefined && rule.path !== path)) return [];
        return [{ subject: path, message: `the filesystem ${path} is ${percent.toFixed(1)} % full` }];
      });
    case "app_crashed":
      return facts.apps
        .filter(({ state }) => state === "CRASHED" || state === "FAILED")
        .map(({ id, state }) => ({ subject: id, message: `app "${id}" is ${state}` }));
    case "backup_overdue":
      return facts.apps.flatMap(({ id, backedUpAtMs, createdAtMs }) => {
        if (backedUpAtMs === undefined) return [];
        const hours = (facts.nowMs - (backedUpAtMs ?? createdAtMs)) / hourMs;
        if (hours <= rule.afterHours) return [];
        const what = backedUpAtMs === null ? "has no backup yet" : "was last backed up";
        return [{ subject: id, message: `app "${id}" ${what} ${since(hours, backedUpAtMs)}` }];
      });
  }
}

function since(hours: number, backedUpAtMs: number | null): string {
  const span = `${Math.floor(hours)} hours`;
  return backedUpAtMs === null ? `after ${span}` : `${span} ago`;
}
