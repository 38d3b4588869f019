/** One call of a long method, as the contract's `Operation`, and its row in the database. */
import {
  OperationKinds,
  OperationStates,
  type OperationKind,
  type OperationState,
} from "../../gen/svc/v1/values.ts";
import { isObject, type JsonObject } from "../lib/json.ts";
import {
  isCount,
  isFlag,
  isInstant,
  isName,
  isText,
  isUid,
  isInteger,
  listOf,
  maybe,
  objectOf,
  oneOf,
  orNull,
  readChecked,
  readDocument,
  type Fields,
} from "../store/row-document.ts";
import type { RowKind } from "../store/row-reader.ts";
import type { Statement } from "../store/store.ts";

export interface OperationLine {
  /** Counts the lines of the operation from 1. */
  readonly number: number;
  readonly atMs: number;
  readonly phase: string;
  readonly text: string;
  readonly stepNumber?: number | undefined;
  readonly stepCount?: number | undefined;
  readonly service?: string | undefined;
}

export interface OperationFailure {
  readonly message: string;
  /** The error code of the contract, such as `failed_precondition`. */
  readonly code: string;
  /** ProtoJSON of the contract's `ErrorDetail`. */
  readonly detail: JsonObject;
}

/** Like the contract's `Operation`. */
export interface OperationRecord {
  readonly id: string;
  readonly kind: OperationKind;
  /** Empty for a prune, for work on files, and for an install until the new app has an ID. */
  appId: string;
  readonly ownerUid: number;
  readonly callerUid: number;
  readonly detached: boolean;
  state: OperationState;
  phase: string;
  message: string;
  doneBytes?: number | undefined;
  totalBytes?: number | undefined;
  stepNumber?: number | undefined;
  stepCount?: number | undefined;
  service: string;
  readonly startedAtMs: number;
  endedAtMs?: number | undefined;
  error?: OperationFailure | undefined;
  result?: JsonObject | undefined;
  /** The last lines, oldest first. */
  lines: OperationLine[];
}

/** The content of the column `document`. */
type Document = Pick<
  OperationRecord,
  "kind" | "callerUid" | "detached" | "phase" | "message" | "error" | "result"
>;

export interface RecordRow {
  id: string;
  owner_uid: number;
  app_id: string;
  state: string;
  started_at: number;
  ended_at: number | null;
  document: string;
  /** Not selected for listings. */
  log?: string;
}

const failureFields: Fields<OperationFailure> = { message: isText, code: isText, detail: isObject };
const lineFields: Fields<OperationLine> = {
  ...{ number: isCount, atMs: isInstant, phase: isText, text: isText },
  ...{ stepNumber: maybe(isCount), stepCount: maybe(isCount), service: maybe(isText) },
};
const documentFields: Fields<Document> = {
  ...{ kind: oneOf(OperationKinds), callerUid: isInteger, detached: isFlag },
  ...{ phase: isText, message: isText, error: maybe(objectOf(failureFields)), result: maybe(isObject) },
};

const columns: Fields<Required<RecordRow>> = {
  ...{ id: isName, owner_uid: isUid, app_id: isText, state: oneOf(OperationStates) },
  ...{ started_at: isInstant, ended_at: orNull(isInstant), document: isText, log: isText },
};

export const recordRows: RowKind<RecordRow, OperationRecord> = {
  table: "operation_records",
  columns,
  nameOf: ({ id }) => `operation ${id}`,
  remedy: () => "no action needed: it is removed a day after it finished",
  read: (row) => ({
    ...readDocument<Document>(row.document, documentFields),
    ...{ id: row.id, ownerUid: row.owner_uid, appId: row.app_id, state: row.state as OperationState },
    service: "",
    startedAtMs: row.started_at,
    ...(row.ended_at !== null && { endedAtMs: row.ended_at }),
    lines:
      row.log === undefined
        ? []
        : readChecked(row.log, listOf(objectOf(lineFields)), "its log is not a list of lines"),
  }),
};

/** Everything but the log. */
export const selectRecords =
  "SELECT id, owner_uid, app_id, state, started_at, ended_at, document FROM operation_records";

/** Inserts or replaces the record. */
export function saveRecord(record: OperationRecord): Statement {
  const { kind, callerUid, detached, phase, message, error, result } = record;
  const document: Document = { kind, callerUid, detached, phase, message, error, result };
  return {
    sql: `INSERT INTO operation_records (id, owner_uid, app_id, state, started_at, ended_at, document, log)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?)
          ON CONFLICT (id) DO UPDATE SET app_id = excluded.app_id, state = excluded.state,
            ended_at = excluded.ended_at, document = excluded.document, log = excluded.log`,
    params: [
      ...[record.id, record.ownerUid, record.appId, record.state],
      ...[record.startedAtMs, record.endedAtMs ?? null],
      ...[JSON.stringify(document), JSON.stringify(record.lines)],
    ],
  };
}
