/** What svc keeps of a job: one row of `jobs`, with the part that only this folder understands as JSON. */
import { BoundedMemo } from "../../lib/bounded-memo.ts";
import type { Statement } from "../../store/store.ts";
import type { Job, JobKey, JobSpec } from "./job.ts";
import type { TriggerParser } from "../trigger/trigger.ts";

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

/** The part of a job that is JSON in its row; the trigger as it was written. */
type JobDocument = Omit<JobSpec, "managedBy" | "trigger"> & { readonly trigger: string };

/** Equal for specs that are equal: the fields stand in one order. */
export function documentOf(spec: JobSpec): string {
  const { trigger, timeZone, enabled, comment, action, timeoutSecs, keep, jitterSecs, retries, catchUp } =
    spec;
  const document: JobDocument = {
    trigger: trigger.text,
    timeZone,
    enabled,
    comment,
    action: {
      type: action.type,
      ...(action.app !== undefined && { app: action.app }),
      ...(action.storages !== undefined && { storages: action.storages }),
      ...(action.keep !== undefined && { keep: action.keep }),
      ...(action.command !== undefined && { command: action.command }),
      ...(action.url !== undefined && { url: action.url }),
      ...(action.method !== undefined && { method: action.method }),
      ...(action.headers !== undefined && { headers: sorted(action.headers) }),
      ...(action.body !== undefined && { body: action.body }),
      ...(action.keepChildren !== undefined && { keepChildren: action.keepChildren }),
    },
    timeoutSecs,
    ...(keep !== undefined && { keep }),
    jitterSecs,
    retries,
    catchUp,
  };
  return JSON.stringify(document);
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

/** Adds jobs of one manager of root's, in one statement however many they are; a taken key is a conflict. */
export function insertJobs(
  ownerUid: number,
  managedBy: string,
  jobs: readonly { id: string; document: string }[],
  nowMs: number,
): Statement[] {
  if (jobs.length === 0) return [];
  return [
    {
      sql: `INSERT INTO jobs (${jobColumns})
            SELECT ?, '', value ->> 0, ?, value -> 1, ?, ${nextRevision} FROM json_each(?)`,
      params: [
        ownerUid,
        managedBy,
        nowMs,
        listOf(jobs, ({ id, document }) => [JSON.stringify(id), document]),
      ],
      changes: jobs.length,
    },
  ];
}

/** Replaces jobs of one owner as they were read, as {@link updateJob} does one. */
export function updateJobs(
  ownerUid: number,
  jobs: readonly { stored: Job; document: string }[],
  nowMs: number,
): Statement[] {
  if (jobs.length === 0) return [];
  return [
    {
      // Materialized, so that each of them is looked up in the index of jobs and not the other way round.
      sql: `WITH new AS MATERIALIZED (
              SELECT value ->> 0 AS id, value -> 1 AS document, value ->> 2 AS revision FROM json_each(?2))
            UPDATE jobs SET document = new.document, updated_at = ?3, revision = ${nextRevision} FROM new
            WHERE jobs.owner_uid = ?1 AND jobs.id = new.id AND jobs.revision = new.revision`,
      params: [
        ownerUid,
        listOf(jobs, ({ stored, document }) => [
          JSON.stringify(stored.id),
          document,
          String(stored.revision),
        ]),
        nowMs,
      ],
      changes: jobs.length,
    },
  ];
}

/** Documents are JSON already: they stand in it as they are. */
function listOf<T>(jobs: readonly T[], partsOf: (job: T) => readonly string[]): string {
  return `[${jobs.map((job) => `[${partsOf(job).join(",")}]`).join(",")}]`;
}

/** How many words are remembered; forgetting them costs nothing but sharing. */
const maxShared = 4_096;

/**
 * Makes jobs of rows. What many jobs have in common is kept once: a hundred thousand of them have few triggers, zones
 * and owners.
 */
export class JobReader {
  readonly #triggers: TriggerParser;
  readonly #words = new BoundedMemo<string, string>(maxShared);

  constructor(triggers: TriggerParser) {
    this.#triggers = triggers;
  }

  read(row: JobRow): Job {
    const document = JSON.parse(row.document) as JobDocument;
    const { keep } = document;
    // Always the same fields in the same order, so that all jobs have one shape.
    return {
      ownerUid: row.owner_uid,
      ownerName: this.#word(row.owner_name),
      id: row.id,
      managedBy: this.#word(row.managed_by),
      updatedAtMs: row.updated_at,
      revision: row.revision,
      trigger: this.#triggers.parse(document.trigger),
      timeZone: this.#word(document.timeZone),
      enabled: document.enabled,
      comment: document.comment,
      action: document.action,
      timeoutSecs: document.timeoutSecs,
      jitterSecs: document.jitterSecs,
      retries: document.retries,
      // One that was kept before this was refused: it would reboot the host at each start.
      catchUp: document.action.type === "node_reboot" ? "none" : document.catchUp,
      ...(keep !== undefined && { keep }),
    };
  }

  #word(text: string): string {
    return this.#words.get(text, (word) => word);
  }
}
