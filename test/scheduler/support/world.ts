/** A registry and a run log over a temporary store, with a fake clock. */
import type { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { JobRegistry } from "../../../src/scheduler/jobs/job-registry.ts";
import { documentOf, insertJob, updateJob, writeJobs } from "../../../src/scheduler/jobs/job-row.ts";
import type { Job, JobKey, JobSpec } from "../../../src/scheduler/jobs/job.ts";
import { readProcessIdentity } from "../../../src/sys/process-identity.ts";
import { RunLog } from "../../../src/scheduler/runs/run-log.ts";
import type { Run, RunOutcome } from "../../../src/scheduler/runs/run.ts";
import { FairQueue } from "../../../src/lib/fair-queue.ts";
import { Schedules } from "../../../src/scheduler/schedules.ts";
import { Zones } from "../../../src/triggers/zone.ts";
import { currentExecutor, type Executor } from "../../../src/store/executors.ts";
import type { Store } from "../../../src/store/store.ts";
import { openStore, temporaryDir } from "../../store/support/temporary-store.ts";
import { parseTrigger } from "./parse-trigger.ts";

export interface World extends AsyncDisposable {
  readonly dir: string;
  readonly store: Store;
  readonly registry: JobRegistry;
  readonly log: RunLog;
  readonly clock: { nowMs: number };
}

export interface WorldOptions {
  /** Default: one that is removed with the world. */
  dir?: string;
  /** Default: this process. */
  executor?: Executor;
}

export async function openWorld(options: WorldOptions = {}): Promise<World> {
  await using resources = new AsyncDisposableStack();
  const dir = options.dir ?? resources.use(await temporaryDir()).path;
  const clock = { nowMs: Date.UTC(2026, 0, 1) };
  const store = resources.use(await openStore({ dir }));
  const registry = resources.use(new JobRegistry(store));
  const log = resources.use(
    new RunLog({
      store,
      executor: options.executor ?? (await currentExecutor()),
      now: () => clock.nowMs,
      log: { info: () => undefined, error: () => undefined },
    }),
  );
  const owned = resources.move();
  return { dir, store, registry, log, clock, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

/** Handlers over a world in which nothing runs. */
export function schedulesOf(world: World, owners: JobOwners): Schedules {
  const unused = (): never => {
    throw new Error("nothing is run here");
  };
  return new Schedules({
    ...world,
    runs: world.log,
    runner: { start: unused, follow: unused, cancel: unused, finishing: unused },
    zones: new Zones({ local: () => "UTC" }),
    selfUid: 0,
    owners,
    hasApp: () => true,
    waitOf: () => undefined,
    now: () => world.clock.nowMs,
    fairQueue: new FairQueue(),
    log: { warn: () => undefined },
  });
}

export function spec(changes: Partial<JobSpec> = {}): JobSpec {
  return {
    trigger: parseTrigger("hourly"),
    timeZone: "",
    enabled: true,
    comment: "",
    managedBy: "",
    action: { type: "shell", command: "true" },
    timeoutSecs: 600,
    jitterSecs: 0,
    retries: 0,
    catchUp: "none",
    ...changes,
  };
}

/** Adds a job, or replaces the one with that key. */
export async function putJob(
  { store, registry, clock }: World,
  key: JobKey,
  changes: Partial<JobSpec> = {},
): Promise<Job> {
  const stored = registry.get(key);
  await store.write([
    stored === undefined
      ? insertJob(key, spec(changes), clock.nowMs)
      : updateJob(stored, spec(changes), clock.nowMs),
  ]);
  const job = registry.get(key);
  if (job === undefined) throw new Error(`job ${key.id} was not stored`);
  return job;
}

export async function removeJob({ store }: World, { ownerUid, id }: JobKey): Promise<void> {
  await store.write([{ sql: "DELETE FROM jobs WHERE owner_uid = ? AND id = ?", params: [ownerUid, id] }]);
}

/** The active runs of all jobs. */
export async function runningRuns({ registry, log }: World): Promise<Run[]> {
  await registry.untilCurrent();
  return registry.all().flatMap((job) => log.runningOf(job) ?? []);
}

/** The newest run of a job. */
export function newestRun({ log }: World, key: JobKey): Run | undefined {
  return log.list(key, 1)[0];
}

export const succeeded: RunOutcome = { status: "SUCCEEDED", output: "", error: "", truncated: false };

/** An executor that does not exist any more. */
export async function deadExecutor(): Promise<Executor> {
  return { ...(await currentExecutor()), startTicks: 1 };
}

/** Another living executor: the process that started this one. */
export async function otherExecutor(): Promise<Executor> {
  const identity = await readProcessIdentity(process.ppid);
  if (identity === undefined) throw new Error("this process has no parent");
  return { ...(await currentExecutor()), ...identity };
}

/** Jobs with IDs from `job-0000` on, of about `chars` characters each. */
export async function addMany({ store }: World, count: number, chars = 200): Promise<void> {
  const jobs = Array.from({ length: count }, (_, index) => ({
    id: `job-${String(index).padStart(6, "0")}`,
    document: documentOf(spec({ comment: "x".repeat(chars) })),
  }));
  await store.write(writeJobs({ ownerUid: 0, managedBy: "", added: jobs, changed: [] }, 1), {
    timeoutMs: 60_000,
  });
}
