/** The policy for scheduled backups of an app: set by a user, or recommended by the package. */
import { invalidRequest, type FieldViolation } from "../../errors.ts";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import { newTriggerProblem } from "../../triggers/trigger.ts";
import type { BackupMode } from "../../apps/lifecycle/backup-hold.ts";
import type { Retention } from "./retention.ts";
import { localName, type StorageEntry } from "../storages/storage-list.ts";

export interface BackupPolicySpec extends Retention {
  /** A trigger as for jobs; empty: only on request. */
  trigger: string;
  /** Empty: the local storage. */
  storages: string[];
  mode: BackupMode;
  /** Whether each backup is also restored to a temporary directory. */
  verify: boolean;
  /** Whether to catch up on the newest missed backup, within {@link catchUpMs}. */
  catchUp: "none" | "latest";
}

/** The same limit as for jobs. */
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

/** Why encrypted backups are not verified automatically. */
export const encryptedCannotBeTested =
  "all storages are encrypted: their backups can be verified only on request, with an identity";

/** @param storages names of existing storages @throws SvcError `invalid_request` */
export function checkPolicy(
  spec: BackupPolicySpec,
  storages: readonly Pick<StorageEntry, "name" | "recipients">[],
): void {
  const violations: FieldViolation[] = [];
  const problem = spec.trigger === "" ? undefined : newTriggerProblem(spec.trigger);
  if (problem !== undefined) violations.push({ field: "trigger", description: problem });
  for (const [at, name] of spec.storages.entries()) {
    if (!storages.some((each) => each.name === name))
      violations.push({
        field: `storages[${at}]`,
        description: `no storage "${name}"; list them with: svc backup storage ls`,
      });
  }
  const names = spec.storages.length > 0 ? spec.storages : [localName];
  const isSealed = storages
    .filter(({ name }) => names.includes(name))
    .every(({ recipients }) => recipients.length > 0);
  if (spec.verify && violations.length === 0 && isSealed)
    violations.push({ field: "verify", description: encryptedCannotBeTested });
  if (violations.length > 0) throw invalidRequest(violations);
}
