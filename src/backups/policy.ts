/** When an app is backed up by itself, and how: what its people set, or its package recommends. */
import { invalidRequest, type FieldViolation } from "../errors.ts";
import type { Manifest } from "../packages/manifest.ts";
import { triggerProblem } from "../scheduler/trigger/trigger.ts";
import type { BackupMode } from "../apps/backup-hold.ts";
import type { Retention } from "./rotation.ts";
import { localName, type StorageEntry } from "./storages/storage-list.ts";

export interface BackupPolicySpec extends Retention {
  /** As triggers of jobs; empty: only on request. */
  trigger: string;
  /** The local one when empty. */
  storages: string[];
  mode: BackupMode;
  /** What was made is restored for a trial, too. */
  verify: boolean;
  /** Whether one is made for the newest that was missed, within {@link catchUpMs}. */
  catchUp: "none" | "latest";
}

/** How far back one is made up for: as far as jobs are. */
export const catchUpMs = 7 * 24 * 60 * 60_000;

export function packagePolicy({ backup }: Pick<Manifest, "backup">): BackupPolicySpec {
  return {
    trigger: backup?.trigger ?? "",
    storages: backup?.storages ?? [],
    keep: backup?.keep,
    mode: backup?.mode ?? "live",
    verify: false,
    catchUp: "none",
  };
}

/** Why nothing proves by itself what is encrypted. */
export const sealedFromTrials =
  "all of the storages encrypt: what is there is verified on request, with an identity, and not by itself";

/** @param storages those that there are @throws SvcError `invalid_request` */
export function checkPolicy(
  spec: BackupPolicySpec,
  storages: readonly Pick<StorageEntry, "name" | "recipients">[],
): void {
  const violations: FieldViolation[] = [];
  const problem = spec.trigger === "" ? undefined : triggerProblem(spec.trigger);
  if (problem !== undefined) violations.push({ field: "trigger", description: problem });
  for (const [at, name] of spec.storages.entries()) {
    if (!storages.some((each) => each.name === name))
      violations.push({ field: `storages[${at}]`, description: `there is no storage "${name}"` });
  }
  const names = spec.storages.length > 0 ? spec.storages : [localName];
  const isSealed = storages
    .filter(({ name }) => names.includes(name))
    .every(({ recipients }) => recipients.length > 0);
  if (spec.verify && violations.length === 0 && isSealed)
    violations.push({ field: "verify", description: sealedFromTrials });
  if (violations.length > 0) throw invalidRequest(violations);
}
