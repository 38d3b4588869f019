/** Finds unreadable rows in all tables of the database, with the remedy for each. */
import type { DatabaseSync } from "node:sqlite";
import { alertRows } from "../observability/alerts/alert-store.ts";
import { appRows } from "../apps/records/app-record.ts";
import { operationRows } from "../apps/lifecycle/operations.ts";
import { AuditReader } from "../observability/audit/audit-reader.ts";
import { auditRows } from "../observability/audit/audit-record.ts";
import { policyRows } from "../backups/policies/backup-states.ts";
import { archiveRows } from "../backups/archives/archive-catalog.ts";
import { storageRows } from "../backups/storages/storage-list.ts";
import { credentialRows } from "../access/credentials.ts";
import { programRows } from "../engine/container-programs.ts";
import { stageRows } from "../files/file-stages.ts";
import { recordRows } from "../operations/operation-record.ts";
import { sourceRows } from "../packages/sources/source-list.ts";
import {
  unlistedImages,
  unrecordedAppRows,
  userImageRows,
  type UnlistedImage,
} from "../runtimes/docker/user-images.ts";
import { jobRows } from "../scheduler/jobs/job-row.ts";
import { outputRows, runRows } from "../scheduler/runs/run-row.ts";
import { skipRows } from "../scheduler/runs/run-summaries.ts";
import { openToInspect } from "../store/inspection.ts";
import { UnreadableRow } from "../store/row-document.ts";
import { plainNumbers } from "../store/reader.ts";
import { readRow, type RowKind } from "../store/row-reader.ts";
import type { SqlValue, Store } from "../store/store.ts";
import { windowRows } from "../access/tokens/rotation-record.ts";

const lockWaitMs = 1_000;

/** The kinds of rows in each table, except tables that contain only svc's own counters. */
export const rowKinds = [
  ...[appRows, operationRows, jobRows(), runRows, outputRows, skipRows],
  ...[storageRows, archiveRows, policyRows, credentialRows, sourceRows],
  ...[alertRows, auditRows, stageRows, programRows, windowRows, recordRows],
  ...[userImageRows, unrecordedAppRows],
] as readonly RowKind<never, unknown>[];

/** Internal tables, whose rows are never shown: counters, the ends and gaps of the audit log's chain, the store's ID, key and schema digest. */
export const counters: readonly string[] = [
  ...["audit_chain", "audit_gaps", "audit_shares", "apps_version", "job_changes", "run_numbers", "store_id"],
  ...["engine_key", "unproven_apps", "schema_digest"],
];

export interface UnreadableItem {
  /** The name of the item. */
  readonly name: string;
  readonly remedy: string;
}

/** Yields the rows one at a time. @param path of the database, which has the current schema */
export function* unreadableRows(path: string): Generator<UnreadableItem> {
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

/**
 * The first problem in the chain of the audit log; undefined if it is intact.
 * @param path of the database, which has the current schema
 */
export async function auditProblem(path: string): Promise<string | undefined> {
  using opened = openToInspect(path, lockWaitMs);
  return (await new AuditReader(readerOf(opened.database)).verify()).problem;
}

/** @param path of the database, which has the current schema */
export function storedUnlistedImages(path: string, registries: readonly string[]): UnlistedImage[] {
  using opened = openToInspect(path, lockWaitMs);
  return unlistedImages(readerOf(opened.database), registries);
}

function readerOf(database: DatabaseSync): Pick<Store, "all" | "get"> {
  return {
    all: <Row>(sql: string, ...params: SqlValue[]) => database.prepare(sql).all(...params) as Row[],
    get: (sql: string, ...params: SqlValue[]) => database.prepare(sql).get(...params) as never,
  };
}
