/** All jobs as one reading of the database found them: an array in the order of their keys, and what each owner has of them. */
import { compareKeys, indexFrom, textLength, type Job, type JobKey } from "./job.ts";

/** What the jobs of an owner come to; see `OwnerBounds`. */
export interface OwnerTotals {
  readonly jobs: number;
  readonly chars: number;
}

/** What came of a key that was written. */
export interface JobChange {
  readonly key: JobKey;
  /** Undefined when it is gone. */
  readonly job: Job | undefined;
}

/** Jobs between two places where the work may be interrupted: some 100 µs. */
const stride = 4_096;

/** The same for changes, which cost more. */
const changeStride = 512;

const nothing: OwnerTotals = { jobs: 0, chars: 0 };

export class JobTable {
  /** By owner and id. Never changed: whoever walks over it may take their time. */
  readonly jobs: readonly Job[];
  readonly #totals: ReadonlyMap<number, OwnerTotals>;

  constructor(jobs: readonly Job[] = [], totals: ReadonlyMap<number, OwnerTotals> = new Map()) {
    this.jobs = jobs;
    this.#totals = totals;
  }

  get(key: JobKey): Job | undefined {
    const job = this.jobs[this.indexOf(key)];
    return job !== undefined && compareKeys(job, key) === 0 ? job : undefined;
  }

  /** Where the key is, or would be. */
  indexOf(key: JobKey): number {
    return indexFrom(this.jobs, key);
  }

  totalsOf(ownerUid: number): OwnerTotals {
    return this.#totals.get(ownerUid) ?? nothing;
  }

  /** The table with these changes, which are taken one by one. @param changes of different keys */
  *withAll(changes: Iterable<JobChange>): Generator<undefined, JobTable> {
    const taken: JobChange[] = [];
    for (const change of changes) {
      taken.push(change);
      if (taken.length % changeStride === 0) yield;
    }
    return yield* this.with(taken.sort((a, b) => compareKeys(a.key, b.key)));
  }

  /** The table with these changes. @param changes of different keys, by owner and id */
  *with(changes: readonly JobChange[]): Generator<undefined, JobTable> {
    const jobs: Job[] = [];
    const totals = new Map(this.#totals);
    let from = 0;
    for (const [index, { key, job }] of changes.entries()) {
      if (index % changeStride === changeStride - 1) yield;
      const at = this.indexOf(key);
      if (from < at) yield* append(jobs, this.jobs, from, at);
      const before = this.jobs[at];
      const isThere = before !== undefined && compareKeys(before, key) === 0;
      if (isThere) addTo(totals, before, -1);
      if (job !== undefined) {
        addTo(totals, job, 1);
        jobs.push(job);
      }
      from = isThere ? at + 1 : at;
    }
    yield* append(jobs, this.jobs, from, this.jobs.length);
    return new JobTable(jobs, totals);
  }
}

function* append(to: Job[], jobs: readonly Job[], from: number, end: number): Generator<undefined, void> {
  for (let at = from; at < end; at += 1) {
    const job = jobs[at];
    if (job !== undefined) to.push(job);
    if (at % stride === stride - 1) yield;
  }
}

function addTo(totals: Map<number, OwnerTotals>, job: Job, sign: 1 | -1): void {
  const { jobs, chars } = totals.get(job.ownerUid) ?? nothing;
  totals.set(job.ownerUid, { jobs: jobs + sign, chars: chars + sign * textLength(job) });
}
