/** The jobs as the database has them, kept in memory; those that somebody wrote are read again. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { notFound } from "../../errors.ts";
import type { Log } from "../../lib/log.ts";
import type { Store } from "../../store/store.ts";
import { TriggerParser } from "../trigger/trigger.ts";
import { JobReading, type JobState } from "./job-reading.ts";
import { jobColumns, JobReader, type JobRow } from "./job-row.ts";
import { JobTable, type JobChange, type OwnerTotals } from "./job-table.ts";
import type { Job, JobKey } from "./job.ts";

/** Who asks: the part of the transport's user context that the jobs go by. */
export interface JobCaller {
  readonly uid: number;
  /** The caller's name, where the host has one. */
  readonly user?: string;
  /** True: sees and manages everybody's jobs. */
  readonly root: boolean;
}

/** What a write will have made of the jobs, if nobody else writes meanwhile. */
export interface ForeseenJobs {
  /** What it was worked out from. */
  readonly base: JobState;
  readonly table: JobTable;
}

/** Changes that are read at once by whoever asks next: a few milliseconds at most. */
const maxAtOnce = 32;
/** Of the event loop, at a time. */
const sliceMs = 2;

export class JobRegistry implements Disposable {
  /** What the jobs' triggers have in common, for whoever reads more of them. */
  readonly triggers = new TriggerParser();
  readonly reader: JobReader;
  readonly #store: Store;
  readonly #subscription: Disposable;
  readonly #reading: JobReading;
  #state: JobState = { table: new JobTable(), seen: undefined };
  /** The reading that goes on, and what it began with. */
  #catchUp: Iterator<undefined, JobState> | undefined;
  #stale = true;

  constructor(store: Store, log?: Pick<Log, "error">) {
    this.#store = store;
    this.reader = new JobReader(this.triggers, log);
    this.#reading = new JobReading(store, this.reader);
    this.#subscription = store.onChange(() => this.invalidate());
  }

  /** To be called after an own write: what is asked next must see it. */
  invalidate(): void {
    this.#stale = true;
  }

  /** Resolves when {@link all} and {@link visible} see all that was written before. */
  async fresh(): Promise<void> {
    await inSlices(this.update());
  }

  /** The same, for work in slices; several may go on at once, and do it together. */
  *update(): Generator<undefined, void> {
    while (this.#catchUp !== undefined || this.#refresh() === undefined) {
      this.#step();
      yield;
    }
  }

  /**
   * All jobs, by owner and id; the same array until one comes, changes or goes, and each job the same object until it does.
   * After many changes at once they are those from before until {@link update} has read them.
   */
  all(): readonly Job[] {
    this.#refresh();
    return this.#state.table.jobs;
  }

  /** The jobs that the caller may see, by owner and id; see {@link all}. */
  visible(caller: JobCaller): readonly Job[] {
    return caller.root ? this.all() : this.ownedBy(caller.uid).filter((job) => isOf(job, caller));
  }

  /** The jobs of one owner, by id; see {@link all}. */
  ownedBy(uid: number): readonly Job[] {
    const jobs = this.all();
    const { table } = this.#state;
    const first = table.indexOf({ ownerUid: uid, id: "" });
    return jobs.slice(first, table.indexOf({ ownerUid: uid + 1, id: "" }));
  }

  /** What the jobs of an owner come to; see {@link all}. */
  totalsOf(ownerUid: number): OwnerTotals {
    this.#refresh();
    return this.#state.table.totalsOf(ownerUid);
  }

  /** Always as it is now. */
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

  /** @throws SvcError `not_found` for a job that is not there, or not the caller's. */
  find(key: JobKey, caller: JobCaller): Job {
    const job = this.get(key);
    if (job === undefined || !(caller.root || isOf(job, caller))) throw notFound("schedule", key.id);
    return job;
  }

  /** The number of the last change that {@link all} has seen. */
  get seen(): number {
    this.#refresh();
    return this.#state.seen ?? 0;
  }

  /**
   * Works out what the jobs are once these changes are written, while they are: what this process has just written itself
   * need not be read again.
   */
  async foresee(changes: Iterable<JobChange>): Promise<ForeseenJobs> {
    const base = this.#state;
    // The writer is to begin first.
    await nextTurn();
    return { base, table: await inSlices(base.table.withAll(changes)) };
  }

  /**
   * Takes over what came of a write before which nobody else has written, unless it has been read already.
   * @param revision the number of its last change
   */
  accept({ base, table }: ForeseenJobs, revision: number): void {
    if (this.#state !== base) return;
    this.#state = { table, seen: revision };
    // A reading that others have begun would read the same again.
    this.#catchUp = undefined;
    this.#stale = true;
  }

  /** Answers the jobs as they are now; undefined when they are too many to be read at once. */
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

  /** Answers whether all has been read. */
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

/** Not those of a former user of the uid. */
export function isOf({ ownerUid, ownerName }: Job, { uid, user = "" }: JobCaller): boolean {
  return ownerUid === uid && (ownerName === "" || user === "" || ownerName === user);
}
