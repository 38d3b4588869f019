/** Pushes: all of one manager's jobs at once (S 1.4.11). */
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Schedule } from "../../../gen/svc/v1/schedule_pb.ts";
import type { JobRegistry } from "./job-registry.ts";
import { documentOf, isSameSpec } from "./job-row.ts";
import type { JobRules } from "./job-rules.ts";
import type { JobWriter, OwnerBounds, ReadJob } from "./job-writer.ts";
import { Violations } from "./violations.ts";

export interface ManagedJobsOptions {
  registry: JobRegistry;
  rules: JobRules;
  writer: JobWriter;
}

/** Jobs that are looked at in one turn of the event loop: a few milliseconds. */
const sliceSize = 100;

export class ManagedJobs {
  readonly #options: ManagedJobsOptions;

  constructor(options: ManagedJobsOptions) {
    this.#options = options;
  }

  /**
   * Replaces them as a whole or not at all.
   * @throws SvcError `invalid_request` with one violation per field of each job; see {@link JobWriter.replaceManaged}
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
    for (const [index, schedule] of schedules.entries()) {
      if (violations.isFull) break;
      if (index % sliceSize === sliceSize - 1) await nextTurn();
      const { id, managedBy: claimed = "" } = schedule;
      const path = `schedules[${index}].`;
      if (jobs.has(id)) violations.add(`${path}id`, `"${id}" is there twice`);
      if (claimed !== "" && claimed !== managedBy) {
        violations.add(`${path}managed_by`, `must be "${managedBy}" or left out, not "${claimed}"`);
      }
      const stored = registry.get({ ownerUid, id });
      // What another manager's job holds is nothing that `***` could bring over.
      const own = stored?.managedBy === managedBy ? stored : undefined;
      const spec = rules.read(schedule, { path, stored: own, isRoots: true }, violations);
      const isSame = stored !== undefined && isSameSpec(stored, spec);
      jobs.set(id, { stored, spec, document: isSame ? undefined : documentOf(spec) });
    }
    violations.check();
    return jobs;
  }
}
