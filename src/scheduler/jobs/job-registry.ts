/** The jobs as the database has them, kept in memory; those that somebody wrote are read again. */
import { notFound } from "../../errors.ts";
import type { Store } from "../../store/store.ts";
import { compareKeys, type Job, type JobKey } from "./job.ts";
import { jobColumns, JobReader, type JobRow } from "./job-row.ts";

/** Who asks: the part of the transport's user context that the jobs go by. */
export interface JobCaller {
  readonly uid: number;
  /** The caller's name, where the host has one. */
  readonly user?: string;
  /** True: sees and manages everybody's jobs. */
  readonly root: boolean;
}

interface ChangeRow {
  revision: number;
  owner_uid: number;
  id: string;
}

export class JobRegistry implements Disposable {
  readonly #store: Store;
  readonly #subscription: Disposable;
  readonly #reader = new JobReader();
  /** By owner and id. Never changed, always replaced: whoever walks over it may take their time. */
  #jobs: readonly Job[] = [];
  /** Number of the last change that is in `#jobs`; none before the first reading. */
  #seen: number | undefined;
  #stale = true;

  constructor(store: Store) {
    this.#store = store;
    this.#subscription = store.onChange(() => this.invalidate());
  }

  /** To be called after an own write: what is asked next must see it. */
  invalidate(): void {
    this.#stale = true;
  }

  /** All jobs, by owner and id; the same array until one comes, changes or goes, and each job the same object until it does. */
  all(): readonly Job[] {
    this.#refresh();
    return this.#jobs;
  }

  /** The jobs that the caller may see, by owner and id. */
  visible(caller: JobCaller): readonly Job[] {
    return caller.root ? this.all() : this.ownedBy(caller.uid).filter((job) => isOf(job, caller));
  }

  /** The jobs of one owner, by id. */
  ownedBy(uid: number): readonly Job[] {
    const jobs = this.all();
    const first = indexOf(jobs, { ownerUid: uid, id: "" });
    return jobs.slice(first, indexOf(jobs, { ownerUid: uid + 1, id: "" }));
  }

  get(key: JobKey): Job | undefined {
    const jobs = this.all();
    const job = jobs[indexOf(jobs, key)];
    return job !== undefined && compareKeys(job, key) === 0 ? job : undefined;
  }

  /** @throws SvcError `not_found` for a job that is not there, or not the caller's. */
  find(key: JobKey, caller: JobCaller): Job {
    const job = this.get(key);
    if (job === undefined || !(caller.root || isOf(job, caller))) throw notFound("schedule", key.id);
    return job;
  }

  /** Reads the jobs that were written since the last time, or all when there are too many to tell which. */
  #refresh(): void {
    if (!this.#stale) return;
    this.#stale = false;
    const seen = this.#seen;
    const changes =
      seen === undefined
        ? []
        : this.#store.all<ChangeRow>(
            "SELECT revision, owner_uid, id FROM job_changes WHERE revision > ? ORDER BY revision",
            seen,
          );
    if (seen === undefined || (changes.length > 0 && changes[0]?.revision !== seen + 1)) {
      this.#readAll();
      return;
    }
    if (changes.length === 0) return;
    this.#readAgain(changes);
    this.#seen = changes.at(-1)?.revision ?? seen;
  }

  #readAll(): void {
    // Asked first: a job that is written in between is read once more and not missed.
    const last = this.#store.get<{ revision: number | null }>(
      "SELECT max(revision) AS revision FROM job_changes",
    );
    const known = this.#jobs;
    this.#jobs = this.#store
      .all<JobRow>(`SELECT ${jobColumns} FROM jobs ORDER BY owner_uid, id`)
      .map((row) => unlessWritten(known, row) ?? this.#reader.read(row));
    this.#seen = last?.revision ?? 0;
  }

  #readAgain(changes: readonly ChangeRow[]): void {
    const jobs = [...this.#jobs];
    for (const { owner_uid: ownerUid, id } of changes) {
      const row = this.#store.get<JobRow>(
        `SELECT ${jobColumns} FROM jobs WHERE owner_uid = ? AND id = ?`,
        ownerUid,
        id,
      );
      const index = indexOf(jobs, { ownerUid, id });
      const known = jobs[index];
      const isThere = known?.ownerUid === ownerUid && known.id === id;
      if (row !== undefined && isThere && known.revision === row.revision) continue;
      jobs.splice(index, isThere ? 1 : 0, ...(row === undefined ? [] : [this.#reader.read(row)]));
    }
    this.#jobs = jobs;
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
  }
}

/** Not those of a former user of the uid. */
export function isOf({ ownerUid, ownerName }: Job, { uid, user = "" }: JobCaller): boolean {
  return ownerUid === uid && (ownerName === "" || user === "" || ownerName === user);
}

/** The job as it is known, when the row still says the same. */
function unlessWritten(known: readonly Job[], row: JobRow): Job | undefined {
  const job = known[indexOf(known, { ownerUid: row.owner_uid, id: row.id })];
  const isSame = job?.ownerUid === row.owner_uid && job.id === row.id && job.revision === row.revision;
  return isSame ? job : undefined;
}

/** Where the key is, or would be. */
function indexOf(jobs: readonly JobKey[], key: JobKey): number {
  let [low, high] = [0, jobs.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const job = jobs[middle];
    if (job !== undefined && compareKeys(job, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
