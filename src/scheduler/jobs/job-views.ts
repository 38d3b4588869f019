/** Jobs and runs as the contract shows them: header values hidden, with the next firing, the newest run and the skips. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  ScheduleRunSchema,
  ScheduleSchema,
  ScheduleWaitSchema,
  type Schedule,
  type ScheduleActionSchema,
  type ScheduleRun,
  type ScheduleWait,
} from "../../../gen/svc/v1/schedule_pb.ts";
import type { Store } from "../../store/store.ts";
import { hideValues } from "./header-rules.ts";
import type { JobOwners } from "./job-owners.ts";
import type { JobWait } from "../clock/due-jobs.ts";
import { revisionText, type Job, type JobAction, type JobKey } from "./job.ts";
import { keyText } from "./job-key.ts";
import { readSummaries, type JobSkip } from "../runs/run-summaries.ts";
import type { Run } from "../runs/run.ts";
import { nextFiring } from "../trigger/next-firing.ts";
import type { Zone, Zones } from "../trigger/zone.ts";

export interface JobViewsOptions {
  store: Store;
  zones: Zones;
  owners: JobOwners;
  /** What a job that is due waits for. */
  waitOf: (key: JobKey) => JobWait | undefined;
  now: () => number;
}

/** A job's next firing, and for which instants that is the answer. */
interface KnownFiring {
  readonly zone: Zone;
  readonly fromMs: number;
  /** Exclusive. */
  readonly untilMs: number;
  readonly nextMs: number | undefined;
}

/** How much of the newest run's error shows beside its job. */
const shownErrorLength = 1_024;
/** How long it is believed that a trigger fires never. */
const neverMs = 60_000;

export class JobViews {
  readonly #options: JobViewsOptions;
  readonly #firings = new WeakMap<Job, KnownFiring>();

  constructor(options: JobViewsOptions) {
    this.#options = options;
  }

  async one(job: Job): Promise<Schedule> {
    const [view] = await this.many([job]);
    if (view === undefined) throw new Error("a job has no view");
    return view;
  }

  /** @param jobs by owner and id */
  async many(jobs: readonly Job[]): Promise<Schedule[]> {
    const { store, owners, waitOf, now } = this.#options;
    const uids = [...new Set(jobs.map(({ ownerUid }) => ownerUid))];
    const names = new Map(
      await Promise.all(uids.map(async (uid) => [uid, await owners.nameOf(uid)] as const)),
    );
    const summaries = readSummaries(store, jobs);
    const nowMs = now();
    return jobs.map((job) => {
      const { last, skips = [] } = summaries.get(keyText(job)) ?? {};
      const name = names.get(job.ownerUid);
      const problem = owners.problem(job, name);
      const nextMs = job.enabled && problem === undefined ? this.#nextMs(job, nowMs) : undefined;
      const wait = waitOf(job);
      return create(ScheduleSchema, {
        ...viewSpec(job),
        ownerName: job.ownerName === "" ? (name ?? "") : job.ownerName,
        disabledReason: problem ?? "",
        ...(wait !== undefined && { waiting: viewWait(wait) }),
        ...(nextMs !== undefined && { nextRunUnix: BigInt(nextMs / 1000) }),
        ...(last !== undefined && { lastRun: viewLastRun(last) }),
        skipped: skips.reduce((sum, { count }) => sum + count, 0),
        skips: skips.map(viewSkip),
      });
    });
  }

  #nextMs(job: Job, nowMs: number): number | undefined {
    const zone = this.#options.zones.named(job.timeZone);
    // One that this runtime no longer knows: the job does not fire either.
    if (zone === undefined) return undefined;
    const known = this.#firings.get(job);
    if (known?.zone === zone && nowMs >= known.fromMs && nowMs < known.untilMs) return known.nextMs;
    const nextMs = nextFiring(job.trigger, zone, nowMs)?.unixMs;
    this.#firings.set(job, { zone, fromMs: nowMs, untilMs: nextMs ?? nowMs + neverMs, nextMs });
    return nextMs;
  }
}

function viewSpec(job: Job) {
  const isUtc = job.timeZone === "UTC";
  return {
    id: job.id,
    trigger: job.trigger.text,
    utc: isUtc,
    timeZone: isUtc ? "" : job.timeZone,
    enabled: job.enabled,
    comment: job.comment,
    ...(job.managedBy !== "" && { managedBy: job.managedBy }),
    action: viewAction(job.action),
    timeout: job.timeoutSecs,
    ...(job.keep !== undefined && { keep: job.keep }),
    owner: job.ownerUid,
    revision: revisionText(job),
    jitterSecs: job.jitterSecs,
    retries: job.retries,
    catchUp: job.catchUp,
  };
}

function viewAction(action: JobAction): MessageInitShape<typeof ScheduleActionSchema> {
  const { storages, headers, ...rest } = action;
  return {
    ...rest,
    ...(storages !== undefined && { storages: [...storages] }),
    ...(headers !== undefined && { headers: hideValues(headers) }),
  };
}

export function viewWait({ reason, scheduledAtMs, untilMs }: JobWait): ScheduleWait {
  return create(ScheduleWaitSchema, {
    reason,
    scheduledAt: timestampFromMs(scheduledAtMs),
    ...(untilMs !== undefined && { until: timestampFromMs(untilMs) }),
  });
}

function viewSkip({ reason, count, lastUnix }: JobSkip) {
  return { reason, count, lastUnix: BigInt(lastUnix) };
}

/** Beside its job: without its output, so that a list of a thousand jobs stays small. */
function viewLastRun(run: Run): ScheduleRun {
  const { outcome } = run;
  if (outcome === undefined) return viewRun(run);
  const error = outcome.error.slice(0, shownErrorLength);
  return viewRun({ ...run, outcome: { ...outcome, output: "", error } });
}

export function viewRun({ number, job, outcome, ...run }: Run): ScheduleRun {
  return create(ScheduleRunSchema, {
    id: String(number),
    jobId: job.id,
    owner: job.ownerUid,
    trigger: run.trigger,
    attempt: run.attempt,
    ...(run.scheduledAtMs !== undefined && { scheduledAt: timestampFromMs(run.scheduledAtMs) }),
    startedAt: timestampFromMs(run.startedAtMs),
    ...(run.endedAtMs !== undefined && { endedAt: timestampFromMs(run.endedAtMs) }),
    ...(outcome === undefined
      ? { status: "RUNNING" }
      : {
          status: outcome.status,
          ...(outcome.exitCode !== undefined && { exitCode: outcome.exitCode }),
          ...(outcome.httpStatus !== undefined && { httpStatus: outcome.httpStatus }),
          output: outcome.output,
          error: outcome.error,
          truncated: outcome.truncated,
        }),
  });
}
