/** Which rows of the database cannot be read, in all of its tables, and what can be done about each. */
import { alertRows } from "../alerts/alert-store.ts";
import { appRows } from "../apps/app-record.ts";
import { operationRows } from "../apps/operations.ts";
import { auditRows } from "../audit/audit-record.ts";
import { policyRows } from "../backups/backup-states.ts";
import { archiveRows } from "../backups/catalogue.ts";
import { storageRows } from "../backups/storages/storage-list.ts";
import { credentialRows } from "../credentials/credentials.ts";
import { programRows } from "../docker/container-programs.ts";
import { stageRows } from "../files/file-stages.ts";
import { sourceRows } from "../packages/source-list.ts";
import { jobRows } from "../scheduler/jobs/job-row.ts";
import { outputRows, runRows } from "../scheduler/runs/run-row.ts";
import { skipRows } from "../scheduler/runs/run-summaries.ts";
import { openToInspect } from "../store/inspection.ts";
import { UnreadableRow } from "../store/row-document.ts";
import { plainNumbers } from "../store/reader.ts";
import { readRow, type RowKind } from "../store/row-reader.ts";
import { windowRows } from "../tokens/rotation-record.ts";

const lockWaitMs = 1_000;

/** What the rows of each table are: of every one that has more than svc's own counters. */
export const rowKinds = [
  ...[appRows, operationRows, jobRows(), runRows, outputRows, skipRows],
  ...[storageRows, archiveRows, policyRows, credentialRows, sourceRows],
  ...[alertRows, auditRows, stageRows, programRows, windowRows],
] as readonly RowKind<never, unknown>[];

/** Tables whose rows nobody sees: counters, and what svc tells its stores apart by. */
export const counters: readonly string[] = [
  ...["audit_chain", "apps_version", "job_changes", "run_numbers", "store_id"],
];

export interface UnreadableThing {
  /** What it is of. */
  readonly name: string;
  readonly remedy: string;
}

/** One after the other. @param path of the database, which has today's schema */
export function* unreadableRows(path: string): Generator<UnreadableThing> {
  using opened = openToInspect(path, lockWaitMs);
  const { database } = opened;
  for (const kind of rowKinds) {
    const statement = database.prepare(`SELECT * FROM ${kind.table} WHERE ${kind.where ?? "true"}`);
    statement.setReadBigInts(true);
    for (const each of statement.iterate()) {
      plainNumbers(each);
      const row = each as never;
      try {
        readRow(kind, row);
      } catch (error) {
        if (!(error instanceof UnreadableRow)) throw error;
        yield { name: kind.nameOf(row), remedy: kind.remedy(row) };
      }
    }
  }
}
