/** A runner over a real run log, with a clock and actions of the test. */
import { SvcError } from "../../../src/errors.ts";
import type { Action, ActionResult, ActionWork, Actions } from "../../../src/scheduler/actions/action.ts";
import { DueJobs } from "../../../src/scheduler/clock/due-jobs.ts";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { insertJob, updateJob } from "../../../src/scheduler/jobs/job-row.ts";
import type { Job, JobKey, JobSpec } from "../../../src/scheduler/jobs/job.ts";
import { Limiter, type LimiterOptions } from "../../../src/lib/limiter.ts";
import { runBounds, Runner } from "../../../src/scheduler/runs/runner.ts";
import { SkipCounts } from "../../../src/scheduler/runs/skip-counts.ts";
import { ScheduleActionTypes } from "../../../gen/svc/v1/values.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { openWorld, spec, type World } from "./world.ts";

export interface RunWorld extends AsyncDisposable {
  readonly world: World;
  readonly clock: FakeClock;
  readonly runner: Runner;
  readonly due: DueJobs;
  readonly skips: SkipCounts;
  readonly logged: string[];
  addJob(id: string, changes?: Partial<JobSpec>, ownerUid?: number): Promise<Job>;
  edit(job: Job, changes: Partial<JobSpec>): Promise<void>;
  remove(key: JobKey): Promise<void>;
}

/** @param names of users by their uids; "alice" for all others */
export async function openRunWorld(
  act: Action,
  bounds: LimiterOptions<number> = runBounds,
  names: ReadonlyMap<number, string | undefined> = new Map(),
): Promise<RunWorld> {
  const world = await openWorld();
  const clock = new FakeClock("2026-01-01T00:00:00Z");
  const logged: string[] = [];
  const note = (_details: object, message: string): void => void logged.push(message);
  const log = { info: note, warn: note, error: note };
  const actions = Object.fromEntries(ScheduleActionTypes.map((type) => [type, act])) as Actions;
  const { registry, log: runs, store } = world;
  const isRoot = (uid: number): boolean => uid === 0;
  const slots = new Limiter({ ...bounds, isReserved: isRoot });
  const owners = new JobOwners({
    selfUid: 0,
    lookUp: async (uid) => {
      const name = names.has(uid) ? names.get(uid) : "alice";
      if (name === undefined) throw new SvcError("not_possible", `no user ${uid}`);
      return Promise.resolve(name);
    },
  });
  const runner = new Runner({ jobs: registry, owners, runs, actions, slots, clock, isRoot, log });
  const skips = new SkipCounts({ runs, clock, log });
  const jitter = ({ jitterSecs }: Job): number => jitterSecs * 500;
  const due = new DueJobs({ jobs: registry, owners, runner, slots, skips, clock, jitter, log });
  return {
    world,
    clock,
    runner,
    due,
    skips,
    logged,
    async addJob(id, changes, ownerUid = 0) {
      await store.write([
        insertJob({ ownerUid, ownerName: ownerUid === 0 ? "" : "alice", id }, spec(changes), clock.nowMs()),
      ]);
      const job = registry.get({ ownerUid, id });
      if (job === undefined) throw new Error(`no job ${id}`);
      return job;
    },
    async edit(job, changes) {
      await store.write([updateJob(job, { ...job, ...changes }, clock.nowMs())]);
    },
    async remove({ ownerUid, id }) {
      const sql = "DELETE FROM jobs WHERE owner_uid = ? AND id = ?";
      await store.write([{ sql, params: [ownerUid, id], changes: 1 }]);
    },
    async [Symbol.asyncDispose]() {
      due[Symbol.dispose]();
      await skips[Symbol.asyncDispose]();
      await runner[Symbol.asyncDispose]();
      await world[Symbol.asyncDispose]();
    },
  };
}

/** Resolves once the run is aborted, as an action that observes its signal does. */
export async function untilAborted({ signal }: ActionWork): Promise<ActionResult> {
  await new Promise((_resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
  });
  return {};
}
