/** What is known of an app's backups, in one line. */
import type { App } from "../transport/calls.ts";
import { formatAge } from "./units.ts";

/** `3m ago to local, far; proven 2m ago; overdue`. Undefined where there is nothing to say. */
export function lastBackupText({ backups }: Pick<App, "backups">, nowMs: number): string | undefined {
  if (backups === undefined) return undefined;
  const { last_backup_at: last, storages, last_proven_at: proven, overdue } = backups;
  const made = last === undefined ? "never" : `${formatAge(last, nowMs)} to ${storages.join(", ")}`;
  const tried = proven === undefined ? "never proven" : `proven ${formatAge(proven, nowMs)}`;
  const isKnown = last !== undefined || proven !== undefined;
  return [made, ...(isKnown ? [tried] : []), ...(overdue ? ["overdue"] : [])].join("; ");
}
