/** An immutable snapshot of all jobs: an array in the order of their keys, and totals per owner. */
import { compareKeys, indexFrom, textLength, type Job, type JobKey } from "./job.ts";

/** Totals of an owner's jobs; see `OwnerBounds`. */
export interface OwnerTotals {
  readonly jobs: number;
  readonly chars: number;
}

/** A changed key with its job. */
export interface JobChange {
  readonly key: JobKey;
  /** Undefined if it was removed. */
  readonly job: Job | undefined;
}

/** Jobs between two interruption points, about 100 µs. */
const stride = 4_096;

/** The same for changes, which take longer. */
const changeStride = 512;

const nothing: OwnerTotals = { jobs: 0, chars: 0 };

export class JobTable {
  /** By owner and ID. Never modified, so it can be iterated asynchronously. */
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

  /** The index of the key, or of its insertion point. */
  indexOf(key: JobKey): number {
    return indexFrom(this.jobs, key);
  }

  totalsOf(ownerUid: number): OwnerTotals {
    return this.#totals.get(ownerUid) ?? nothing;
  }

  /** The table with these changes, consumed one by one. @param changes distinct keys, in any order */
  *withAll(changes: Iterable<JobChange>): Generator<undefined, JobTable> {
    return yield* this.with(yield* sorted(changes));
  }

  /** The table with these changes. @param changes distinct keys, by owner and ID */
  *with(changes: readonly JobChange[]): Generator<undefined, JobTable> {
    const jobs: Job[] = [];
    const totals = new Map(this.#totals);
    let from = 0;
    for (const [index, { key, job }] of changes.entries()) {
      if (index % changeStride === changeStride - 1) yield;
      // Many changes usually concern adjacent jobs.
      const next = this.jobs[from];
      const at = next !== undefined && compareKeys(next, key) === 0 ? from : this.indexOf(key);
      if (from < at) yield* append(jobs, this.jobs, from, at);
      const before = this.jobs[at];
      const isThere = before !== undefined && compareKeys(before, key) === 0;
      exchange(totals, key.ownerUid, isThere ? before : undefined, job);
      if (job !== undefined) jobs.push(job);
      from = isThere ? at + 1 : at;
    }
    yield* append(jobs, this.jobs, from, this.jobs.length);
    return new JobTable(jobs, totals);
  }
}

/** Sorts by owner and ID in slices, because sorting ten thousand at once would block the event loop. */
function* sorted(changes: Iterable<JobChange>): Generator<undefined, JobChange[]> {
  const all: JobChange[] = [];
  let isSorted = true;
  let last: JobChange | undefined;
  for (const change of changes) {
    // Changes are usually sorted already.
    isSorted &&= last === undefined || byKey(last, change) < 0;
    last = change;
    if (all.push(change) % changeStride === 0) yield;
  }
  if (isSorted) return all;
  let runs: JobChange[][] = [];
  for (let at = 0; at < all.length; at += changeStride) {
    runs.push(all.slice(at, at + changeStride).sort(byKey));
    yield;
  }
  while (runs.length > 1) {
    const longer: JobChange[][] = [];
    for (let at = 0; at < runs.length; at += 2) {
      longer.push(yield* merge(runs[at] ?? [], runs[at + 1] ?? []));
    }
    runs = longer;
  }
  return runs[0] ?? [];
}

function* merge(left: JobChange[], right: JobChange[]): Generator<undefined, JobChange[]> {
  const merged: JobChange[] = [];
  let [leftAt, rightAt] = [0, 0];
  while (leftAt < left.length || rightAt < right.length) {
    const [a, b] = [left[leftAt], right[rightAt]];
    if (a !== undefined && (b === undefined || byKey(a, b) < 0)) {
      merged.push(a);
      leftAt += 1;
    } else if (b !== undefined) {
      merged.push(b);
      rightAt += 1;
    }
    if (merged.length % changeStride === 0) yield;
  }
  return merged;
}

function byKey(a: JobChange, b: JobChange): number {
  return compareKeys(a.key, b.key);
}

function* append(to: Job[], jobs: readonly Job[], from: number, end: number): Generator<undefined, void> {
  for (let at = from; at < end; at += 1) {
    const job = jobs[at];
    if (job !== undefined) to.push(job);
    if (at % stride === stride - 1) yield;
  }
}

/** Replaces, adds or removes a job in the totals. */
function exchange(
  totals: Map<number, OwnerTotals>,
  ownerUid: number,
  before: Job | undefined,
  job: Job | undefined,
): void {
  const lengthOf = (each: Job | undefined): number => (each === undefined ? 0 : textLength(each));
  const [more, longer] = [
    Number(job !== undefined) - Number(before !== undefined),
    lengthOf(job) - lengthOf(before),
  ];
  if (more === 0 && longer === 0) return;
  const { jobs, chars } = totals.get(ownerUid) ?? nothing;
  totals.set(ownerUid, { jobs: jobs + more, chars: chars + longer });
}
