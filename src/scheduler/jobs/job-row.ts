/** What svc keeps of a job: one row of `jobs`, with the part that only this folder understands as JSON. */
import { isDeepStrictEqual } from "node:util";
import { ScheduleActionTypes, ScheduleCatchUps } from "../../../gen/svc/v1/words.ts";
import { BoundedMemo } from "../../lib/bounded-memo.ts";
import type { Log } from "../../lib/log.ts";
import {
  isCount,
  isFlag,
  isInstant,
  isName,
  isText,
  isUid,
  isWhole,
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
import { never, TriggerParser, type Trigger } from "../trigger/trigger.ts";

/** A row of `jobs` as SQLite answers it. */
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

/** Every write makes a change, so the number of the next one is new. */
const nextRevision = "(SELECT coalesce(max(revision), 0) + 1 FROM job_changes)";

/** Of a change that was noted before, for many jobs. */
const lastRevision = "(SELECT max(revision) FROM job_changes)";

/** The part of a job that is JSON in its row; the trigger as it was written. */
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

/** A document with its trigger read. */
interface ReadDocument {
  readonly document: JobDocument;
  readonly trigger: Trigger;
}

/** The rows of jobs. @param triggers what they have in common */
export function jobRows(triggers: TriggerParser = new TriggerParser()): RowKind<JobRow, ReadDocument> {
  return {
    table: "jobs",
    columns: {
      ...{ n: isWhole, owner_uid: isUid, owner_name: isText, id: isName, managed_by: isText },
      ...{ document: isText, updated_at: isInstant, revision: isWhole },
    },
    nameOf: ({ id, owner_uid }) => `schedule "${id}" of uid ${owner_uid}`,
    remedy: ({ id, owner_uid }) =>
      isNamed({ id, owner_uid })
        ? `svc schedule remove ${id} --owner ${owner_uid} removes it; then add it again`
        : "nobody can name it, and nothing comes of it",
    read: (row) => {
      const document = readDocument<JobDocument>(row.document, documentFields);
      const trigger = triggers.read(document.trigger);
      if (typeof trigger === "string") throw new UnreadableRow("it has no right trigger");
      return { document, trigger };
    },
  };
}

function isNamed({ id, owner_uid }: Pick<JobRow, "id" | "owner_uid">): boolean {
  return isName(id) && isUid(owner_uid);
}

/**
 * In the place of a document that cannot be read: it is neither due nor does it do anything. It is as the contract wants answers,
 * so that nobody's program stumbles over a list that has it, and nothing that could be written again.
 */
const standIn: Omit<JobSpec, "managedBy"> = {
  trigger: { ...never, text: "damaged" },
  ...{ timeZone: "", enabled: true, comment: "" },
  action: { type: "shell", command: "" },
  ...{ timeoutSecs: 1, jitterSecs: 0, retries: 0, catchUp: "none" },
};

/** As a row keeps it. */
export function documentOf(spec: JobSpec): string {
  return JSON.stringify(toDocument(spec));
}

/** The fields stand in one order, whoever wrote the job. */
function toDocument(spec: JobSpec): JobDocument {
  const document: Writable<JobDocument> = {
    trigger: spec.trigger.text,
    timeZone: spec.timeZone,
    enabled: spec.enabled,
    comment: spec.comment,
    action: toKept(spec.action),
    timeoutSecs: spec.timeoutSecs,
    jitterSecs: spec.jitterSecs,
    retries: spec.retries,
    catchUp: spec.catchUp,
  };
  if (spec.keep !== undefined) document.keep = spec.keep;
  return document;
}

/** The same headers in another order are the same job. */
function toKept(action: JobAction): JobAction {
  return action.headers === undefined ? action : { ...action, headers: sorted(action.headers) };
}

/** Whether two specs would be the same document, without making it: all but the manager. */
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

/** A job's key with the name that its owner has now; see `Job`. */
export type OwnedKey = JobKey & { readonly ownerName?: string };

/** Adds a job; a taken key is a conflict. */
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

/** Replaces a job as it was read; one that somebody wrote or removed since is a conflict. */
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

/** Notes the name of an owner at the jobs that have none. */
export function nameOwner(ownerUid: number, ownerName: string): Statement {
  return {
    sql: `UPDATE jobs SET owner_name = ?, revision = ${nextRevision} WHERE owner_uid = ? AND owner_name = ''`,
    params: [ownerName, ownerUid],
  };
}

/** Jobs of one owner that are written together. */
export interface ManyJobs {
  readonly ownerUid: number;
  /** Of those that are added. */
  readonly managedBy: string;
  /** A taken key is a conflict. */
  readonly added: readonly { readonly id: string; readonly document: string }[];
  /** As they were read; one that somebody wrote or removed since is a conflict. */
  readonly changed: readonly { readonly stored: Job; readonly document: string }[];
}

/**
 * Writes many jobs, whose change is noted once for all of them. The first statement answers the change's number, which is
 * the revision of each.
 */
export function writeJobs({ ownerUid, managedBy, added, changed }: ManyJobs, nowMs: number): Statement[] {
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
      // Without the owner's name, so that no job is noted by itself: see the trigger job_changed.
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

/** How many words are remembered; forgetting them costs nothing but sharing. */
const maxShared = 4_096;

/**
 * Makes jobs of rows. What many jobs have in common is kept once: a hundred thousand of them have few triggers, zones
 * and owners.
 */
export class JobReader {
  readonly #reader: RowReader<JobRow, ReadDocument>;
  readonly #words = new BoundedMemo<string, string>(maxShared);

  constructor(triggers: TriggerParser, log?: Pick<Log, "error">) {
    this.#reader = new RowReader(jobRows(triggers), log);
  }

  /** Undefined for one that nobody can name. */
  read(row: JobRow): Job | undefined {
    const read = this.#reader.read(row);
    if (!isNamed(row)) return undefined;
    if (read !== undefined) return this.#make(row, read.document, read.trigger, read.document.action);
    return { ...this.#make(row, standIn, standIn.trigger, standIn.action), unreadable: true };
  }

  /** What {@link read} would make of a row that is written with this spec. */
  foresee(row: Omit<JobRow, "document">, spec: JobSpec): Job {
    return this.#make(row, spec, spec.trigger, toKept(spec.action));
  }

  #make(
    row: Omit<JobRow, "document">,
    said: Omit<JobSpec, "managedBy" | "trigger" | "action"> & Pick<Job, "lostApp">,
    trigger: Trigger,
    action: JobAction,
  ): Job {
    // Always the same fields in the same order, so that all jobs have one shape.
    const job: Writable<Job> = {
      ownerUid: row.owner_uid,
      ownerName: this.#word(row.owner_name),
      id: row.id,
      managedBy: this.#word(row.managed_by),
      updatedAtMs: row.updated_at,
      revision: row.revision,
      trigger,
      timeZone: this.#word(said.timeZone),
      enabled: said.enabled,
      comment: said.comment,
      action,
      timeoutSecs: said.timeoutSecs,
      jitterSecs: said.jitterSecs,
      retries: said.retries,
      // One that was kept before this was refused: it would reboot the host at each start.
      catchUp: action.type === "node_reboot" ? "none" : said.catchUp,
    };
    if (said.keep !== undefined) job.keep = said.keep;
    if (said.lostApp !== undefined) job.lostApp = said.lostApp;
    return job;
  }

  #word(text: string): string {
    return this.#words.get(text, (word) => word);
  }
}
