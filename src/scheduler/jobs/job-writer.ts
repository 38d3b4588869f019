/**
 * Changes jobs: each change goes by the jobs as they were read, and is made anew when somebody else was quicker, so that
 * no edit, push or removal undoes one that it has not seen.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { notFound, SvcError } from "../../errors.ts";
import { StoreConflict, type Statement, type Store } from "../../store/store.ts";
import type { JobRegistry } from "./job-registry.ts";
import type { JobChange, OwnerTotals } from "./job-table.ts";
import { insertJob, isSameSpec, updateJob, writeJobs, type OwnedKey } from "./job-row.ts";
import { revisionText, textLength, type Job, type JobKey, type JobSpec } from "./job.ts";

export interface JobWriterOptions {
  store: Store;
  registry: JobRegistry;
  now: () => number;
}

/** A job that is to be, by what is kept under its key now; may throw what is wrong with it. */
export type SpecMaker = (stored: Job | undefined) => JobSpec;

/** What an owner may have. */
export interface OwnerBounds {
  readonly jobs: number;
  /** Of all jobs together, see `textLength`. */
  readonly chars: number;
}

/** What must be kept under a job's key for a write to be done. */
export interface WriteCondition {
  /** Nothing. */
  readonly createOnly: boolean;
  /** The job as of this revision; empty for any, or none. */
  readonly revision: string;
}

/** A job of a push, and what was kept under its key when it was read. */
export interface ReadJob {
  readonly stored: Job | undefined;
  readonly spec: JobSpec;
  /** Of the spec; absent where the stored one says the same. */
  readonly document: string | undefined;
}

/** What the rows of a push have in common. */
interface PushedRow {
  readonly ownerUid: number;
  readonly managedBy: string;
  readonly nowMs: number;
  readonly revision: number;
}

/** How often a change is made anew. */
const maxAttempts = 20;
/** Ids that a refusal names. */
const maxNamed = 100;

export class JobWriter {
  readonly #options: JobWriterOptions;

  constructor(options: JobWriterOptions) {
    this.#options = options;
  }

  /**
   * Makes or replaces a job.
   * @param bounds of its owner
   * @throws SvcError `already_exists` or `aborted` when what is kept is not as `condition` says; `job_owned` when it is
   *   managed by another; `not_found` for a new one that claims to be managed, which only a push makes; `too_many`; what
   *   `make` throws
   */
  async upsert(
    key: OwnedKey,
    make: SpecMaker,
    condition: WriteCondition,
    bounds: OwnerBounds,
  ): Promise<void> {
    const { store, registry, now } = this.#options;
    await this.#untilKept(async () => {
      const stored = registry.get(key);
      checkCondition(key, stored, condition);
      const spec = make(stored);
      if (stored === undefined) {
        if (spec.managedBy !== "") throw notManaged(key, spec.managedBy);
        const { jobs, chars } = registry.totalsOf(key.ownerUid);
        checkRoom({ jobs: jobs + 1, chars: chars + textLength(spec) }, bounds);
        await store.write([insertJob(key, spec, now())]);
      } else {
        if (stored.managedBy !== spec.managedBy) throw jobOwned([stored]);
        const grown = textLength(spec) - textLength(stored);
        const { jobs, chars } = registry.totalsOf(key.ownerUid);
        if (grown > 0) checkRoom({ jobs, chars: chars + grown }, bounds);
        const { ownerName = stored.ownerName } = key;
        const isSame = ownerName === stored.ownerName && isSameSpec(stored, spec);
        if (!isSame) await store.write([updateJob(stored, spec, now(), ownerName)]);
      }
    });
  }

  /** Removes a job with its runs. @throws SvcError `not_found` */
  async remove({ ownerUid, id }: JobKey): Promise<void> {
    const [removed] = await this.#options.store.write(
      [{ sql: "DELETE FROM jobs WHERE owner_uid = ? AND id = ?", params: [ownerUid, id] }],
      { essential: true },
    );
    if (removed?.changes === 0) throw notFound("schedule", id);
  }

  /**
   * Replaces all of one manager's jobs, as a whole or not at all; a job that stays as it is keeps its revision and its
   * runs.
   *
   * @param read the jobs by id, as they are to be; may throw what is wrong with them
   * @throws SvcError `job_owned` when an id is another's; `too_many`
   */
  async replaceManaged(
    ownerUid: number,
    managedBy: string,
    read: () => Promise<ReadonlyMap<string, ReadJob>>,
    bounds: OwnerBounds,
  ): Promise<void> {
    const { store, registry, now } = this.#options;
    await this.#untilKept(async () => {
      const jobs = await read();
      const { seen } = registry;
      const total = { ...registry.totalsOf(ownerUid) };
      const inTheWay: Job[] = [];
      const added: { id: string; document: string }[] = [];
      const changed: { stored: Job; document: string }[] = [];
      for (const [id, { stored, spec, document }] of jobs) {
        if (stored === undefined) total.jobs += 1;
        else if (stored.managedBy !== managedBy) inTheWay.push(stored);
        if (document === undefined) continue;
        total.chars += textLength(spec);
        if (stored === undefined) {
          added.push({ id, document });
        } else {
          total.chars -= textLength(stored);
          changed.push({ stored, document });
        }
      }
      if (inTheWay.length > 0) throw jobOwned(inTheWay);
      const removed = registry
        .ownedBy(ownerUid)
        .filter((job) => job.managedBy === managedBy && !jobs.has(job.id));
      for (const job of removed) {
        total.jobs -= 1;
        total.chars -= textLength(job);
      }
      checkRoom(total, bounds);
      const nowMs = now();
      const revision = registry.seen + removed.length + 1;
      const [[gone, unseen, noted], foreseen] = await Promise.all([
        store.write([
          removeJobs(ownerUid, managedBy, removed),
          removeUnseen(ownerUid, managedBy, seen, [...jobs.keys()]),
          ...writeJobs({ ownerUid, managedBy, added, changed }, nowMs),
        ]),
        registry.foresee(this.#changes(jobs, removed, { ownerUid, managedBy, nowMs, revision })),
      ]);
      // Another number, when anybody else wrote since: then all is read.
      const isForeseen =
        noted?.rows?.[0]?.["revision"] === revision &&
        gone?.changes === removed.length &&
        unseen?.changes === 0;
      if (isForeseen) registry.accept(foreseen, revision);
    });
  }

  /** What a push comes to, as it would be read. */
  *#changes(
    jobs: ReadonlyMap<string, ReadJob>,
    removed: readonly Job[],
    { ownerUid, managedBy, nowMs, revision }: PushedRow,
  ): Generator<JobChange> {
    const { reader } = this.#options.registry;
    for (const job of removed) yield { key: job, job: undefined };
    for (const [id, { stored, spec, document }] of jobs) {
      if (document === undefined) continue;
      const job = reader.foresee(
        {
          owner_uid: ownerUid,
          owner_name: stored?.ownerName ?? "",
          id,
          managed_by: managedBy,
          updated_at: nowMs,
          revision,
        },
        spec,
      );
      yield { key: job, job };
    }
  }

  async #untilKept(change: () => Promise<void>): Promise<void> {
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      try {
        await this.#options.registry.fresh();
        await change();
        return;
      } catch (error) {
        if (!(error instanceof StoreConflict)) throw error;
      }
      // Another process's write is noticed later than it is met.
      this.#options.registry.invalidate();
      await sleep(Math.random() * attempt);
    }
    throw new SvcError("conflict", "others change the same schedules all the time; try again");
  }
}

/** Those that are gone already are none too few. */
function removeJobs(ownerUid: number, managedBy: string, jobs: readonly Job[]): Statement {
  return {
    sql: "DELETE FROM jobs WHERE owner_uid = ? AND managed_by = ? AND id = ?",
    params: [ownerUid, managedBy],
    columns: [jobs.map(({ id }) => id)],
  };
}

/**
 * Removes a manager's jobs that are not among `ids` and came since the change `seen`: almost always none, for which the CASE
 * spares the list of all ids.
 */
function removeUnseen(ownerUid: number, managedBy: string, seen: number, ids: readonly string[]): Statement {
  return {
    sql: `DELETE FROM jobs WHERE owner_uid = ? AND managed_by = ?
            AND CASE WHEN revision > ? THEN id NOT IN (SELECT value FROM json_each(?)) END`,
    params: [ownerUid, managedBy, seen, JSON.stringify(ids)],
  };
}

function checkCondition({ id }: JobKey, stored: Job | undefined, condition: WriteCondition): void {
  const { createOnly, revision } = condition;
  if (createOnly && stored !== undefined) {
    throw new SvcError(
      "already_exists",
      `there is a schedule "${id}" already; choose another id, or leave create_only out to replace it`,
    );
  }
  if (revision === "" || (stored !== undefined && revisionText(stored) === revision)) return;
  throw new SvcError(
    "conflict",
    `schedule "${id}" was ${stored === undefined ? "removed" : "changed"} since it was read, so nothing was written; read it again`,
  );
}

function jobOwned(jobs: readonly Job[]): SvcError {
  const ids = jobs.map(({ id }) => id);
  const [{ managedBy } = { managedBy: "" }] = jobs;
  const owner = managedBy === "" ? "the operator" : `"${managedBy}"`;
  const named = ids.slice(0, maxNamed);
  const more = ids.length > named.length ? ` and ${ids.length - named.length} more` : "";
  const list = `${named.map((id) => `"${id}"`).join(", ")}${more}`;
  return new SvcError(
    "job_owned",
    `${ids.length === 1 ? `schedule ${list} is` : `schedules ${list} are`} managed by ${owner}; nothing was written`,
    { payload: { ids, ...(managedBy !== "" && { managedBy }) } },
  );
}

function notManaged({ id }: JobKey, managedBy: string): SvcError {
  return notFound(
    "schedule",
    id,
    `no schedule "${id}" managed by "${managedBy}"; leave managed_by out to make one of the operator's`,
  );
}

function checkRoom({ jobs, chars }: OwnerTotals, bounds: OwnerBounds): void {
  if (jobs > bounds.jobs) {
    throw tooMany(`${jobs} schedules are more than the ${bounds.jobs} that an owner may have`);
  }
  if (chars > bounds.chars) {
    throw tooMany(
      `schedules of ${chars} characters are more than the ${bounds.chars} that an owner may have`,
    );
  }
}

function tooMany(what: string): SvcError {
  return new SvcError("too_many", `${what}; remove some first`);
}
