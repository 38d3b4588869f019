/** The jobs of the database, cached in memory; changed jobs are read again. */
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Log } from "../../lib/log.ts";
import type { Store } from "../../store/store.ts";
import { TriggerParser } from "../../triggers/trigger.ts";
import { JobReading, type JobState } from "./job-reading.ts";
import { jobColumns, JobReader, type JobRow } from "./job-row.ts";
import { JobTable, type JobChange, type OwnerTotals } from "./job-table.ts";
import { jobNotFound, type Job, type JobKey } from "./job.ts";

/** The caller: the part of the user context that jobs need. */
export interface JobCaller {
  readonly uid: number;
  /** The caller's name, if the host has one. */
  readonly user?: string;
  /** True: sees and manages all users' jobs. */
  readonly root: boolean;
}

/** The predicted jobs after a write, if there is no concurrent write. */
export interface ForeseenJobs {
  /** The state that the prediction is based on. */
  readonly base: JobState;
  readonly table: JobTable;
}

/** Maximum changes that the next access reads at once, in a few milliseconds. */
const maxAtOnce = 32;
/** Milliseconds of the event loop per slice. */
const sliceMs = 2;

export class JobRegistry implements Disposable {
  /** A parser that caches the triggers of jobs. */
  readonly triggers = new TriggerParser();
  readonly reader: JobReader;
  readonly #store: Store;
  readonly #subscription: Disposable;
  readonly #reading: JobReading;
  #state: JobState = { table: new JobTable(), seen: undefined };
  /** The running read, and the state that it started from. */
  #catchUp: Iterator<undefined, JobState> | undefined;
  #stale = true;

  constructor(store: Store, log?: Pick<Log, "error">) {
    this.#store = store;
    this.reader = new JobReader(this.triggers, log);
    this.#reading = new JobReading(store, this.reader);
    this.#subscription = store.onChange(() => this.invalidate());
  }

  /** Call after a write of this process, so that the next access sees it. */
  invalidate(): void {
    this.#stale = true;
  }

  /** Resolves when {@link all} and {@link visible} include all earlier writes. */
  async untilCurrent(): Promise<void> {
    await inSlices(this.update());
  }

  /** The same as sliced work; concurrent updates share the reading. */
  *update(): Generator<undefined, void> {
    while (this.#catchUp !== undefined || this.#refresh() === undefined) {
      this.#step();
      yield;
    }
  }

  /**
   * All jobs, by owner and ID. The array and its objects stay the same until a job changes. After many
   * changes at once, returns the previous jobs until {@link update} has read them.
   */
  all(): readonly Job[] {
    this.#refresh();
    return this.#state.table.jobs;
  }

  /** The jobs visible to the caller, by owner and ID; see {@link all}. */
  visible(caller: JobCaller): readonly Job[] {
    return caller.root ? this.all() : this.ownedBy(caller.uid).filter((job) => isOf(job, caller));
  }

  /** The jobs of one owner, by ID; see {@link all}. */
  ownedBy(uid: number): readonly Job[] {
    const jobs = this.all();
    const { table } = this.#state;
    const first = table.indexOf({ ownerUid: uid, id: "" });
    return jobs.slice(first, table.indexOf({ ownerUid: uid + 1, id: "" }));
  }

  /** The totals of an owner's jobs; see {@link all}. */
  totalsOf(ownerUid: number): OwnerTotals {
    this.#refresh();
    return this.#state.table.totalsOf(ownerUid);
  }

  /** The current job, read from the database. */
  get(key: JobKey): Job | undefined {
    if (this.#refresh() !== undefined) return this.#state.table.get(key);
    const row = this.#store.get<JobRow>(
      `SELECT ${jobColumns} FROM jobs WHERE owner_uid = ? AND id = ?`,
      key.ownerUid,
      key.id,
    );
    const known = this.#state.table.get(key);
    if (row === undefined) return undefined;
    return known?.revision === row.revision ? known : this.reader.read(row);
  }

  /** @throws SvcError `not_found` if it does not exist or belongs to another user */
  find(key: JobKey, caller: JobCaller): Job {
    const job = this.get(key);
    if (job === undefined || !(caller.root || isOf(job, caller))) throw jobNotFound(key.id);
    return job;
  }

  /** The revision of {@link all}. */
  get seen(): number {
    this.#refresh();
    return this.#state.seen ?? 0;
  }

  /** Predicts the jobs after these changes while they are written, so that they need not be read again. */
  async foresee(changes: Iterable<JobChange>): Promise<ForeseenJobs> {
    const base = this.#state;
    // Lets the write start first.
    await nextTurn();
    return { base, table: await inSlices(base.table.withAll(changes)) };
  }

  /**
   * Adopts a prediction if there was no concurrent write, unless the changes are already read.
   * @param revision revision of its last change
   */
  accept({ base, table }: ForeseenJobs, revision: number): void {
    if (this.#state !== base) return;
    this.#state = { table, seen: revision };
    // A running read would read the same changes again.
    this.#catchUp = undefined;
    this.#stale = true;
  }

  /** The current jobs; undefined if there are too many changes to read at once. */
  #refresh(): JobTable | undefined {
    if (!this.#stale && this.#catchUp === undefined) return this.#state.table;
    if (this.#catchUp !== undefined || this.#reading.rowsToRead(this.#state, maxAtOnce) > maxAtOnce) {
      return undefined;
    }
    let isDone: boolean;
    do isDone = this.#step();
    while (!isDone);
    return this.#state.table;
  }

  /** Runs one step. @returns whether all is read */
  #step(): boolean {
    if (this.#catchUp === undefined) {
      this.#stale = false;
      this.#catchUp = this.#reading.catchUp(this.#state);
    }
    try {
      const step = this.#catchUp.next();
      if (step.done !== true) return false;
      this.#state = step.value;
    } catch (error) {
      this.#stale = true;
      this.#catchUp = undefined;
      throw error;
    }
    this.#catchUp = undefined;
    return true;
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
  }
}

async function inSlices<T>(work: Generator<undefined, T>): Promise<T> {
  for (;;) {
    const endMs = performance.now() + sliceMs;
    do {
      const step = work.next();
      if (step.done === true) return step.value;
    } while (performance.now() < endMs);
    await nextTurn();
  }
}

/** False for jobs of a former user with the same uid. */
export function isOf({ ownerUid, ownerName }: Job, { uid, user = "" }: JobCaller): boolean {
  return ownerUid === uid && (ownerName === "" || user === "" || ownerName === user);
}
