/** A scheduled job as the rest of the scheduler sees it: defaults filled in, the trigger parsed. */
import { hash } from "node:crypto";
import type { ScheduleActionType, ScheduleCatchUp } from "../../../gen/svc/v1/words.ts";
import type { Trigger } from "../trigger/trigger.ts";

/** What names a job: an id is unique with its owner (decisions 24). */
export interface JobKey {
  readonly ownerUid: number;
  readonly id: string;
}

/** What a job does; the fields that its type does not use are absent. */
export interface JobAction {
  readonly type: ScheduleActionType;
  readonly app?: string;
  readonly storages?: readonly string[];
  readonly keep?: number;
  readonly command?: string;
  readonly url?: string;
  readonly method?: string;
  /** With the stored values: only views write `***` over them. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly keepChildren?: boolean;
}

/**
 * For what is made field by field, those that may be absent last: a push has ten thousand jobs, and an object that is spread
 * into another takes several times as long.
 */
export type Writable<T> = { -readonly [Field in keyof T]: T[Field] };

/** What its owner says about a job. */
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
  /** Archives to keep, for backups. */
  readonly keep?: number;
  readonly jitterSecs: number;
  readonly retries: number;
  readonly catchUp: ScheduleCatchUp;
}

/** A job that is kept. */
export interface Job extends JobKey, JobSpec {
  /** As the host called the owner when it was written: see job-owners.ts. Empty for root. */
  readonly ownerName: string;
  /** The app that it was for and that was removed, which no later one of that id is; gone with the next write of the job. */
  readonly lostApp?: string;
  /** The row cannot be read: it is only known whose the job is. Gone with the next write of the job. */
  readonly unreadable?: true;
  /** Unix milliseconds. */
  readonly updatedAtMs: number;
  /** Never the same for two writes of one job. */
  readonly revision: number;
}

/**
 * A job's revision as clients see it: a word to compare, and nothing else. The number counts the changes of all users' jobs,
 * so it is made of what its owner knows of the job; of headers by name alone, as their values may be secrets.
 */
export function revisionText({ revision: _, trigger, action, ...rest }: Job): string {
  const shown = { ...action, headers: Object.keys(action.headers ?? {}) };
  return hash("sha256", JSON.stringify([trigger.text, shown, rest]), "base64url");
}

/** How much a job takes in an answer, in characters: what may be long of it. */
export function textLength({ comment, trigger, action }: JobSpec): number {
  const { command = "", body = "", url = "", headers } = action;
  const length = trigger.text.length + comment.length + command.length + body.length + url.length;
  // Few have any, and ten thousand are asked at a time.
  if (headers === undefined) return length;
  return Object.entries(headers).reduce((sum, [name, value]) => sum + name.length + value.length, length);
}

/** The order of jobs everywhere: by owner, then by id. */
export function compareKeys(a: JobKey, b: JobKey): number {
  if (a.ownerUid !== b.ownerUid) return a.ownerUid - b.ownerUid;
  if (a.id === b.id) return 0;
  return a.id < b.id ? -1 : 1;
}

/** Where the first job is that stands at a key or behind it. @param jobs by owner and id */
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

/** The same, without the one at the key itself. */
export function indexAfter(jobs: readonly JobKey[], key: JobKey): number {
  const at = indexFrom(jobs, key);
  const job = jobs[at];
  return job !== undefined && compareKeys(job, key) === 0 ? at + 1 : at;
}
