/**
 * Changes jobs with optimistic concurrency: each change is based on the read jobs and repeated after a
 * conflict, so that no edit, push or removal overwrites an unseen change.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { notFound, SvcError } from "../../errors.ts";
import { StoreConflict, type Statement, type Store } from "../../store/store.ts";
import type { JobRegistry } from "./job-registry.ts";
import type { JobChange, OwnerTotals } from "./job-table.ts";
import { insertJob, isSameSpec, updateJob, writeJobs, type OwnedKey } from "./job-row.ts";
import { jobNotFound, revisionText, textLength, type Job, type JobKey, type JobSpec } from "./job.ts";

export interface JobWriterOptions {
  store: Store;
  registry: JobRegistry;
  now: () => number;
}

/** Creates the new job from the stored one; may throw validation errors. */
export type SpecMaker = (stored: Job | undefined) => JobSpec;

/** Limits per owner. */
export interface OwnerBounds {
  readonly jobs: number;
  /** Total characters of all jobs; see `textLength`. */
  readonly chars: number;
}

/** Conditions on the stored job for a write. */
export interface WriteCondition {
  /** Requires that no job is stored. */
  readonly createOnly: boolean;
  /** Requires this revision; empty: no condition. */
  readonly revision: string;
}

/** A job of a push, with the stored job that was read. */
export interface ReadJob {
  readonly stored: Job | undefined;
  readonly spec: JobSpec;
  /** The new document; absent if the stored one is equal. */
  readonly document: string | undefined;
}

/** Values that all rows of a push share. */
interface PushedRow {
  readonly ownerUid: number;
  readonly managedBy: string;
  readonly nowMs: number;
  readonly revision: number;
}

/** Maximum attempts after conflicts. */
const maxAttempts = 20;
/** Maximum number of IDs in an error message. */
const maxNamed = 100;

export class JobWriter {
  readonly #options: JobWriterOptions;

  constructor(options: JobWriterOptions) {
    this.#options = options;
  }

  /**
   * Adds or replaces a job.
   * @param bounds limits of its owner
   * @throws SvcError `already_exists` or `aborted` if `condition` does not hold; `job_owned` if another
   * manager manages it; `not_found` for a new managed job, which only a push can create; `too_many`; errors
   * of `make`
   */
  async upsert(
    key: OwnedKey,
    make: SpecMaker,
    condition: WriteCondition,
    bounds: OwnerBounds,
  ): Promise<void> {
    const { store, registry, now } = this.#options;
    await this.#retryUntilStored(async () => {
      const stored = registry.get(key);
      checkCondition(key, stored, condition);
      const spec = make(stored);
      if (stored === undefined) {
        if (spec.managedBy !== "") throw notManaged(key, spec.managedBy);
        const { jobs, chars } = registry.totalsOf(key.ownerUid);
        checkSpace({ jobs: jobs + 1, chars: chars + textLength(spec) }, bounds);
        await store.write([insertJob(key, spec, now())]);
      } else {
        if (stored.managedBy !== spec.managedBy) throw jobOwned([stored]);
        const grown = textLength(spec) - textLength(stored);
        const { jobs, chars } = registry.totalsOf(key.ownerUid);
        if (grown > 0) checkSpace({ jobs, chars: chars + grown }, bounds);
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
    if (removed?.changes === 0) throw jobNotFound(id);
  }

  /**
   * Replaces all jobs of a manager atomically; unchanged jobs keep their revision and runs.
   *
   * @param read returns the new jobs by ID; may throw validation errors
   * @throws SvcError `job_owned` if an ID belongs to another manager; `too_many`
   */
  async replaceManaged(
    ownerUid: number,
    managedBy: string,
    read: () => Promise<ReadonlyMap<string, ReadJob>>,
    bounds: OwnerBounds,
  ): Promise<void> {
    const { store, registry, now } = this.#options;
    await this.#retryUntilStored(async () => {
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
      checkSpace(total, bounds);
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
      // The number differs after a concurrent write; then all jobs are read.
      const isForeseen =
        noted?.rows?.[0]?.["revision"] === revision &&
        gone?.changes === removed.length &&
        unseen?.changes === 0;
      if (isForeseen) registry.accept(foreseen, revision);
    });
  }

  /** The changes of a push, as they would be read. */
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

  async #retryUntilStored(change: () => Promise<void>): Promise<void> {
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      try {
        await this.#options.registry.untilCurrent();
        await change();
        return;
      } catch (error) {
        if (!(error instanceof StoreConflict)) throw error;
      }
      // Writes of other processes are noticed with a delay.
      this.#options.registry.invalidate();
      await sleep(Math.random() * attempt);
    }
    throw new SvcError("conflict", "too many concurrent changes of the same jobs; try again");
  }
}

/** Jobs that are already removed do not matter. */
function removeJobs(ownerUid: number, managedBy: string, jobs: readonly Job[]): Statement {
  return {
    sql: "DELETE FROM jobs WHERE owner_uid = ? AND managed_by = ? AND id = ?",
    params: [ownerUid, managedBy],
    columns: [jobs.map(({ id }) => id)],
  };
}

/**
 * Removes a manager's jobs that are not in `ids` and were added after revision `seen`. Usually there are
 * none, and the CASE avoids reading the list of IDs.
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
      `job "${id}" already exists; choose another ID, or omit create_only to replace it`,
    );
  }
  if (revision === "" || (stored !== undefined && revisionText(stored) === revision)) return;
  throw new SvcError(
    "conflict",
    `job "${id}" was ${stored === undefined ? "removed" : "changed"} since it was read, so nothing was written; read it again`,
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
    `${ids.length === 1 ? `job ${list} is` : `jobs ${list} are`} managed by ${owner}; nothing was written`,
    { payload: { ids, ...(managedBy !== "" && { managedBy }) } },
  );
}

function notManaged({ id }: JobKey, managedBy: string): SvcError {
  return notFound(
    "schedule",
    id,
    `no job "${id}" managed by "${managedBy}"; omit managed_by to create an unmanaged one`,
  );
}

function checkSpace({ jobs, chars }: OwnerTotals, bounds: OwnerBounds): void {
  if (jobs > bounds.jobs) {
    throw tooMany(`${jobs} jobs exceed the limit of ${bounds.jobs} per owner`);
  }
  if (chars > bounds.chars) {
    throw tooMany(`jobs with ${chars} characters exceed the limit of ${bounds.chars} per owner`);
  }
}

function tooMany(what: string): SvcError {
  return new SvcError("too_many", `${what}; remove some first`);
}
