/** Which rows of the database cannot be read, in all tables that hold more than plain values. */
import { appRows } from "../apps/app-record.ts";
import { operationRows } from "../apps/operations.ts";
import { policyRows } from "../backups/backup-states.ts";
import { announcedRows } from "../backups/catalogue.ts";
import { storageRows } from "../backups/storages/storage-list.ts";
import { programRows } from "../docker/container-programs.ts";
import { stageRows } from "../files/file-stages.ts";
import { jobRows } from "../scheduler/jobs/job-row.ts";
import { runRows } from "../scheduler/runs/run-row.ts";
import { openToInspect } from "../store/inspection.ts";
import { UnreadableRow } from "../store/row-document.ts";
import { plainNumbers } from "../store/reader.ts";
import type { RowKind } from "../store/row-reader.ts";
import { windowRows } from "../tokens/rotation-record.ts";

const lockWaitMs = 1_000;

/** What the rows are of, one after the other. @param path of the database, which has today's schema */
export function* unreadableRows(path: string): Generator<string> {
  using opened = openToInspect(path, lockWaitMs);
  const { database } = opened;
  const kinds = [
    ...[appRows, operationRows, jobRows(), runRows, storageRows, policyRows],
    ...[announcedRows, stageRows, programRows, windowRows],
  ] as readonly RowKind<never, unknown>[];
  for (const { table, where = "true", nameOf, read } of kinds) {
    const statement = database.prepare(`SELECT * FROM ${table} WHERE ${where}`);
    statement.setReadBigInts(true);
    for (const row of statement.iterate()) {
      plainNumbers(row);
      try {
        read(row as never);
      } catch (error) {
        if (!(error instanceof UnreadableRow)) throw error;
        yield nameOf(row as never);
      }
    }
  }
}
