/** Pushes: replace all jobs of a manager at once. */
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Schedule } from "../../../gen/svc/v1/schedule_pb.ts";
import type { JobRegistry } from "./job-registry.ts";
import { documentOf, isSameSpec } from "./job-row.ts";
import type { JobRules } from "./job-rules.ts";
import type { JobWriter, OwnerBounds, ReadJob } from "./job-writer.ts";
import { compareKeys, indexFrom, type Job, type JobKey } from "./job.ts";
import { Violations } from "./violations.ts";

export interface ManagedJobsOptions {
  registry: JobRegistry;
  rules: JobRules;
  writer: JobWriter;
}

/** Milliseconds of the event loop per slice. */
const sliceMs = 3;

export class ManagedJobs {
  readonly #options: ManagedJobsOptions;

  constructor(options: ManagedJobsOptions) {
    this.#options = options;
  }

  /**
   * Replaces the jobs atomically.
   * @throws SvcError `invalid_request` with one violation per field of each job; see {@link
   * JobWriter.replaceManaged}
   */
  async replace(
    ownerUid: number,
    managedBy: string,
    schedules: readonly Schedule[],
    bounds: OwnerBounds,
  ): Promise<void> {
    const read = (): Promise<ReadonlyMap<string, ReadJob>> => this.#read(ownerUid, managedBy, schedules);
    await this.#options.writer.replaceManaged(ownerUid, managedBy, read, bounds);
  }

  async #read(
    ownerUid: number,
    managedBy: string,
    schedules: readonly Schedule[],
  ): Promise<ReadonlyMap<string, ReadJob>> {
    const { registry, rules } = this.#options;
    const violations = new Violations();
    const jobs = new Map<string, ReadJob>();
    const remaining = new SortedJobs(registry.ownedBy(ownerUid));
    let beganMs = performance.now();
    for (const [index, schedule] of schedules.entries()) {
      if (violations.isFull) break;
      // Not for each job, because reading the clock takes as long as reading a job.
      if (index % 32 === 0 && performance.now() - beganMs > sliceMs) {
        await nextTurn();
        beganMs = performance.now();
      }
      const { id, managedBy: claimed = "" } = schedule;
      const path = `schedules[${index}].`;
      if (jobs.has(id)) violations.add(`${path}id`, `"${id}" is repeated`);
      if (claimed !== "" && claimed !== managedBy) {
        violations.add(`${path}managed_by`, `must be "${managedBy}" or omitted, not "${claimed}"`);
      }
      const stored = remaining.find({ ownerUid, id });
      // `***` cannot keep values of another manager's job.
      const own = stored?.managedBy === managedBy ? stored : undefined;
      const spec = rules.read(schedule, { path, stored: own, isRoots: true }, violations);
      const isSame = stored !== undefined && isSameSpec(stored, spec);
      jobs.set(id, { stored, spec, document: isSame ? undefined : documentOf(spec) });
    }
    violations.check();
    return jobs;
  }
}

/** Finds jobs; fast if they are requested in order. */
class SortedJobs {
  readonly #jobs: readonly Job[];
  #next = 0;

  /** @param jobs by owner and id */
  constructor(jobs: readonly Job[]) {
    this.#jobs = jobs;
  }

  find(key: JobKey): Job | undefined {
    if (this.#jobs[this.#next]?.id !== key.id) this.#next = indexFrom(this.#jobs, key);
    const job = this.#jobs[this.#next];
    if (job === undefined || compareKeys(job, key) !== 0) return undefined;
    this.#next += 1;
    return job;
  }
}
