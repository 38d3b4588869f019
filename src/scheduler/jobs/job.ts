/** A scheduled job with defaults and its parsed trigger. */
import { hash } from "node:crypto";
import type { ScheduleActionType, ScheduleCatchUp } from "../../../gen/svc/v1/values.ts";
import type { Trigger } from "../../triggers/trigger.ts";
import { notFound, type SvcError } from "../../errors.ts";
import { invalidPageToken } from "../../apps/records/page-token.ts";

/** The key of a job: IDs are unique per owner. */
export interface JobKey {
  readonly ownerUid: number;
  readonly id: string;
}

/** The error for an unknown job. The contract calls this kind of object `schedule`. */
export function jobNotFound(id: string): SvcError<"not_found"> {
  return notFound("schedule", id, `no job "${id}"`);
}

/** The action of a job; fields that its type does not use are absent. */
export interface JobAction {
  readonly type: ScheduleActionType;
  readonly app?: string;
  readonly storages?: readonly string[];
  readonly keep?: number;
  readonly command?: string;
  readonly url?: string;
  readonly method?: string;
  /** The stored values; only views mask them. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly keepChildren?: boolean;
}

/**
 * For objects that are built field by field, optional ones last: object spread takes several times as long,
 * and a push may have ten thousand jobs.
 */
export type Writable<T> = { -readonly [Field in keyof T]: T[Field] };

/** The properties of a job that its owner sets. */
export interface JobSpec {
  readonly trigger: Trigger;
  /** `"UTC"`, an IANA name, or empty for the node's local time. */
  readonly timeZone: string;
  readonly enabled: boolean;
  readonly comment: string;
  /** Empty for the operator. */
  readonly managedBy: string;
  readonly action: JobAction;
  readonly timeoutSecs: number;
  /** Number of archives to keep, for backups. */
  readonly keep?: number;
  readonly jitterSecs: number;
  readonly retries: number;
  readonly catchUp: ScheduleCatchUp;
}

/** A stored job. */
export interface Job extends JobKey, JobSpec {
  /** The owner's name when the job was written; see job-owners.ts. Empty for root. */
  readonly ownerName: string;
  /**
   * The removed app that it was for; a later app with the same ID is a different one. Cleared by the next
   * write of the job.
   */
  readonly lostApp?: string;
  /** True if the row cannot be read and only the owner is known. Cleared by the next write of the job. */
  readonly unreadable?: true;
  /** Unix milliseconds. */
  readonly updatedAtMs: number;
  /** Different for each write of a job. */
  readonly revision: number;
}

/**
 * An opaque revision for clients. The stored number counts the changes of all users, so this is a hash of the
 * values that the owner can see; of headers only the names, because values may be secrets.
 */
export function revisionText({ revision: _, trigger, action, ...rest }: Job): string {
  const shown = { ...action, headers: Object.keys(action.headers ?? {}) };
  return hash("sha256", JSON.stringify([trigger.text, shown, rest]), "base64url");
}

/** The size of a job in a response in characters: only fields that may be long. */
export function textLength({ comment, trigger, action }: JobSpec): number {
  const { command = "", body = "", url = "", headers } = action;
  const length = trigger.text.length + comment.length + command.length + body.length + url.length;
  // Returns early, because few jobs have headers.
  if (headers === undefined) return length;
  return Object.entries(headers).reduce((sum, [name, value]) => sum + name.length + value.length, length);
}

/** The order of jobs: by owner, then by ID. */
export function compareKeys(a: JobKey, b: JobKey): number {
  if (a.ownerUid !== b.ownerUid) return a.ownerUid - b.ownerUid;
  if (a.id === b.id) return 0;
  return a.id < b.id ? -1 : 1;
}

/** The index of the first job at or after a key. @param jobs by owner and ID */
export function indexFrom(jobs: readonly JobKey[], key: JobKey): number {
  let [low, high] = [0, jobs.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const job = jobs[middle];
    if (job !== undefined && compareKeys(job, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The index of the first job after a key. */
export function indexAfter(jobs: readonly JobKey[], key: JobKey): number {
  const at = indexFrom(jobs, key);
  const job = jobs[at];
  return job !== undefined && compareKeys(job, key) === 0 ? at + 1 : at;
}

/** A job's key as text, for maps; IDs have no slash. */
export function keyText({ ownerUid, id }: JobKey): string {
  return `${ownerUid}/${id}`;
}

/** The key of a page token. @throws SvcError `invalid_request` for an invalid key */
export function keyOfText(text: string): JobKey {
  const [, uid, id] = /^(\d{1,10})\/(.+)$/s.exec(text) ?? [];
  if (uid === undefined || id === undefined) throw invalidPageToken();
  return { ownerUid: Number(uid), id };
}
