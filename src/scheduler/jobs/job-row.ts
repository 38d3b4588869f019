/** The stored form of a job: one row of `jobs`, with a JSON document that only this folder reads. */
import { isDeepStrictEqual } from "node:util";
import { ScheduleActionTypes, ScheduleCatchUps } from "../../../gen/svc/v1/values.ts";
import { BoundedMemo } from "../../lib/bounded-memo.ts";
import type { Log } from "../../lib/log.ts";
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
  readDocument,
  recordOf,
  UnreadableRow,
  type Fields,
} from "../../store/row-document.ts";
import { RowReader, type RowKind } from "../../store/row-reader.ts";
import type { Statement } from "../../store/store.ts";
import type { Job, JobAction, JobKey, JobSpec, Writable } from "./job.ts";
import { never, TriggerParser, type Trigger } from "../../triggers/trigger.ts";

/** A row of `jobs` as SQLite returns it. */
export interface JobRow {
  owner_uid: number;
  owner_name: string;
  id: string;
  managed_by: string;
  document: string;
  updated_at: number;
  revision: number;
}

export const jobColumns = "owner_uid, owner_name, id, managed_by, document, updated_at, revision";

/** Every write adds a change, so the next number is unused. */
const nextRevision = "(SELECT coalesce(max(revision), 0) + 1 FROM job_changes)";

/** The revision of the change that was just recorded for many jobs. */
const lastRevision = "(SELECT max(revision) FROM job_changes)";

/** The JSON part of a row; the trigger as text. */
type JobDocument = Omit<JobSpec, "managedBy" | "trigger"> &
  Pick<Job, "lostApp"> & { readonly trigger: string };

const documentFields: Fields<JobDocument> = {
  ...{ trigger: isText, timeZone: isText, enabled: isFlag, comment: isText },
  action: objectOf<JobAction>({
    type: oneOf(ScheduleActionTypes),
    ...{ app: maybe(isText), command: maybe(isText), url: maybe(isText), method: maybe(isText) },
    ...{ body: maybe(isText), keep: maybe(isCount), keepChildren: maybe(isFlag) },
    ...{ storages: maybe(listOf(isText)), headers: maybe(recordOf(isText)) },
  }),
  ...{ timeoutSecs: isCount, keep: maybe(isCount), jitterSecs: isCount, retries: isCount },
  catchUp: oneOf(ScheduleCatchUps),
  lostApp: maybe(isText),
};

/** A document with its parsed trigger. */
interface ReadDocument {
  readonly document: JobDocument;
  readonly trigger: Trigger;
}

/** The rows of jobs. @param triggers caches parsed triggers */
export function jobRows(triggers: TriggerParser = new TriggerParser()): RowKind<JobRow, ReadDocument> {
  return {
    table: "jobs",
    columns: {
      ...{ n: isInteger, owner_uid: isUid, owner_name: isText, id: isName, managed_by: isText },
      ...{ document: isText, updated_at: isInstant, revision: isInteger },
    },
    nameOf: ({ id, owner_uid }) => `job "${id}" of uid ${owner_uid}`,
    remedy: ({ id, owner_uid }) =>
      isNamed({ id, owner_uid })
        ? `svc schedule remove ${id} --owner ${owner_uid} removes it; then add it again`
        : "it has no valid name and is ignored",
    read: (row) => {
      const document = readDocument<JobDocument>(row.document, documentFields);
      const trigger = triggers.read(document.trigger);
      if (typeof trigger === "string") throw new UnreadableRow("it has an invalid trigger");
      return { document, trigger };
    },
  };
}

function isNamed({ id, owner_uid }: Pick<JobRow, "id" | "owner_uid">): boolean {
  return isName(id) && isUid(owner_uid);
}

/**
 * Placeholder for an unreadable document. It never fires and has no effect. It is valid in responses, so that
 * clients can parse lists, but cannot be written back.
 */
const placeholder: Omit<JobSpec, "managedBy"> = {
  trigger: { ...never, text: "damaged" },
  ...{ timeZone: "", enabled: true, comment: "" },
  action: { type: "shell", command: "" },
  ...{ timeoutSecs: 1, jitterSecs: 0, retries: 0, catchUp: "none" },
};

/** The JSON document of a row. */
export function documentOf(spec: JobSpec): string {
  return JSON.stringify(toDocument(spec));
}

/** Fields have a fixed order, so that equal jobs have equal documents. */
function toDocument(spec: JobSpec): JobDocument {
  const document: Writable<JobDocument> = {
    trigger: spec.trigger.text,
    timeZone: spec.timeZone,
    enabled: spec.enabled,
    comment: spec.comment,
    action: toStored(spec.action),
    timeoutSecs: spec.timeoutSecs,
    jitterSecs: spec.jitterSecs,
    retries: spec.retries,
    catchUp: spec.catchUp,
  };
  if (spec.keep !== undefined) document.keep = spec.keep;
  return document;
}

/** Headers are sorted, since their order does not matter. */
function toStored(action: JobAction): JobAction {
  return action.headers === undefined ? action : { ...action, headers: sorted(action.headers) };
}

/** Whether two specs have the same document, regardless of the manager. */
export function isSameSpec(a: JobSpec, b: JobSpec): boolean {
  return (
    a.trigger.text === b.trigger.text &&
    a.timeZone === b.timeZone &&
    a.enabled === b.enabled &&
    a.comment === b.comment &&
    a.timeoutSecs === b.timeoutSecs &&
    a.keep === b.keep &&
    a.jitterSecs === b.jitterSecs &&
    a.retries === b.retries &&
    a.catchUp === b.catchUp &&
    isDeepStrictEqual(a.action, b.action)
  );
}

function sorted(headers: Readonly<Record<string, string>>): Record<string, string> {
  const entries = Object.entries(headers);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** A job's key with the owner's current name; see `Job`. */
export type OwnedKey = JobKey & { readonly ownerName?: string };

/** Adds a job; an existing key is a conflict. */
export function insertJob(
  { ownerUid, ownerName = "", id }: OwnedKey,
  spec: JobSpec,
  nowMs: number,
): Statement {
  return {
    sql: `INSERT INTO jobs (${jobColumns}) VALUES (?, ?, ?, ?, ?, ?, ${nextRevision})`,
    params: [ownerUid, ownerName, id, spec.managedBy, documentOf(spec), nowMs],
    changes: 1,
  };
}

/** Replaces a job; a conflict if it was changed or removed since it was read. */
export function updateJob(
  stored: Job,
  spec: JobSpec,
  nowMs: number,
  ownerName: string = stored.ownerName,
): Statement {
  return {
    sql: `UPDATE jobs SET owner_name = ?, managed_by = ?, document = ?, updated_at = ?, revision = ${nextRevision}
          WHERE owner_uid = ? AND id = ? AND revision = ?`,
    params: [ownerName, spec.managedBy, documentOf(spec), nowMs, stored.ownerUid, stored.id, stored.revision],
    changes: 1,
  };
}

/** Sets the owner's name on jobs without one. */
export function nameOwner(ownerUid: number, ownerName: string): Statement {
  return {
    sql: `UPDATE jobs SET owner_name = ?, revision = ${nextRevision} WHERE owner_uid = ? AND owner_name = ''`,
    params: [ownerName, ownerUid],
  };
}

/** Jobs of one owner that are written together. */
export interface JobBatch {
  readonly ownerUid: number;
  /** Manager of the added jobs. */
  readonly managedBy: string;
  /** An existing key is a conflict. */
  readonly added: readonly { readonly id: string; readonly document: string }[];
  /** As they were read; a conflict if one was changed or removed since. */
  readonly changed: readonly { readonly stored: Job; readonly document: string }[];
}

/**
 * Writes many jobs with one recorded change. The first statement returns its number, which is the revision of
 * all jobs.
 */
export function writeJobs({ ownerUid, managedBy, added, changed }: JobBatch, nowMs: number): Statement[] {
  if (added.length + changed.length === 0) return [];
  return [
    { sql: "INSERT INTO job_changes (owner_uid, id) VALUES (?, '') RETURNING revision", params: [ownerUid] },
    {
      sql: `INSERT INTO jobs (owner_uid, managed_by, updated_at, id, document, revision)
            VALUES (?, ?, ?, ?, ?, ${lastRevision})`,
      params: [ownerUid, managedBy, nowMs],
      columns: [added.map(({ id }) => id), added.map(({ document }) => document)],
      changes: added.length,
    },
    {
      // Does not set the owner's name, so that the trigger job_changed records no change per job.
      sql: `UPDATE jobs SET updated_at = ?1, document = ?3, revision = ${lastRevision}
            WHERE owner_uid = ?2 AND id = ?4 AND revision = ?5`,
      params: [nowMs, ownerUid],
      columns: [
        changed.map(({ document }) => document),
        changed.map(({ stored }) => stored.id),
        changed.map(({ stored }) => stored.revision),
      ],
      changes: changed.length,
    },
  ];
}

/** Maximum number of shared strings; clearing them only reduces sharing. */
const maxShared = 4_096;

/**
 * Converts rows to jobs. Shares equal values, since a hundred thousand jobs have few triggers, zones and
 * owners.
 */
export class JobReader {
  readonly #reader: RowReader<JobRow, ReadDocument>;
  readonly #words = new BoundedMemo<string, string>(maxShared);

  constructor(triggers: TriggerParser, log?: Pick<Log, "error">) {
    this.#reader = new RowReader(jobRows(triggers), log);
  }

  /** Undefined for a row without a valid name. */
  read(row: JobRow): Job | undefined {
    const read = this.#reader.read(row);
    if (!isNamed(row)) return undefined;
    if (read !== undefined) return this.#make(row, read.document, read.trigger, read.document.action);
    return { ...this.#make(row, placeholder, placeholder.trigger, placeholder.action), unreadable: true };
  }

  /** The result that {@link read} would return after writing this spec. */
  foresee(row: Omit<JobRow, "document">, spec: JobSpec): Job {
    return this.#make(row, spec, spec.trigger, toStored(spec.action));
  }

  #make(
    row: Omit<JobRow, "document">,
    spec: Omit<JobSpec, "managedBy" | "trigger" | "action"> & Pick<Job, "lostApp">,
    trigger: Trigger,
    action: JobAction,
  ): Job {
    // Always the same fields in the same order, so that V8 uses one hidden class.
    const job: Writable<Job> = {
      ownerUid: row.owner_uid,
      ownerName: this.#word(row.owner_name),
      id: row.id,
      managedBy: this.#word(row.managed_by),
      updatedAtMs: row.updated_at,
      revision: row.revision,
      trigger,
      timeZone: this.#word(spec.timeZone),
      enabled: spec.enabled,
      comment: spec.comment,
      action,
      timeoutSecs: spec.timeoutSecs,
      jitterSecs: spec.jitterSecs,
      retries: spec.retries,
      // Older versions accepted it, but it would reboot the host at each start.
      catchUp: action.type === "node_reboot" ? "none" : spec.catchUp,
    };
    if (spec.keep !== undefined) job.keep = spec.keep;
    if (spec.lostApp !== undefined) job.lostApp = spec.lostApp;
    return job;
  }

  #word(text: string): string {
    return this.#words.get(text, (word) => word);
  }
}
