/** Jobs and runs as messages: with masked header values, the next firing, the newest run and skips. */
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  ScheduleActionSchema,
  ScheduleRunSchema,
  ScheduleSchema,
  ScheduleSkipSchema,
  ScheduleWaitSchema,
  type Schedule,
  type ScheduleAction,
  type ScheduleRun,
  type ScheduleSkip,
  type ScheduleWait,
} from "../../../gen/svc/v1/schedule_pb.ts";
import type { FairQueue } from "../../lib/fair-queue.ts";
import type { Store } from "../../store/store.ts";
import { hideValues } from "./header-rules.ts";
import type { JobOwners } from "./job-owners.ts";
import type { JobWait } from "../clock/due-jobs.ts";
import { revisionText, type Job, type JobAction, type JobKey, keyText } from "./job.ts";
import { RunSummaries, type JobSkip, type RunSummary } from "../runs/run-summaries.ts";
import type { Run } from "../runs/run.ts";
import { nextFiring, rareStarts } from "../../triggers/next-firing.ts";
import type { Trigger } from "../../triggers/trigger.ts";
import type { Zone, Zones } from "../../triggers/zone.ts";

export interface JobViewsOptions {
  store: Store;
  zones: Zones;
  owners: JobOwners;
  /** Why a due job waits. */
  waitOf: (key: JobKey) => JobWait | undefined;
  now: () => number;
  fairQueue: Pick<FairQueue, "wait">;
}

interface Firing {
  readonly nextMs: number | undefined;
  /** The first firing after a year, if none is earlier. */
  readonly laterMs: number | undefined;
}

/** A trigger's next firing in a zone, and the time range for which it is valid. */
interface KnownFiring extends Firing {
  readonly fromMs: number;
  /** Exclusive. */
  readonly untilMs: number;
}

/** Milliseconds before yielding to other users: the first computation in a zone takes milliseconds. */
const sliceMs = 2;
/** Maximum of a `uint32`. */
const maxCount = 2 ** 32 - 1;
/** How long the result "never fires" is cached, in milliseconds. */
const neverMs = 60_000;
const neverFires: Firing = { nextMs: undefined, laterMs: undefined };

export class JobViews {
  readonly #options: JobViewsOptions;
  readonly #revisions = new WeakMap<Job, string>();
  /** Cached by zone and trigger, which many jobs share and which stay the same across writes. */
  readonly #firings = new WeakMap<Zone, WeakMap<Trigger, KnownFiring>>();
  readonly #summaries: RunSummaries;

  constructor(options: JobViewsOptions) {
    this.#options = options;
    this.#summaries = new RunSummaries(options.store);
  }

  async one(job: Job): Promise<Schedule> {
    const [view] = await this.many([job], "");
    if (view === undefined) throw new Error("a job has no view");
    return view;
  }

  /**
   * @param jobs by owner and ID
   * @param share name of the share whose queue is used
   */
  async many(jobs: readonly Job[], share: string): Promise<Schedule[]> {
    const { owners, now, fairQueue } = this.#options;
    const uids = [...new Set(jobs.map(({ ownerUid }) => ownerUid))];
    const names = new Map(
      await Promise.all(uids.map(async (uid) => [uid, await owners.nameOf(uid)] as const)),
    );
    const summaries = this.#summaries.of(jobs);
    const nowMs = now();
    let beganMs = performance.now();
    const views: Schedule[] = [];
    for (const job of jobs) {
      if (performance.now() - beganMs > sliceMs) {
        await fairQueue.wait(share);
        beganMs = performance.now();
      }
      const summary = summaries.size === 0 ? undefined : summaries.get(keyText(job));
      views.push(this.#view(job, names.get(job.ownerUid), summary, nowMs));
    }
    return views;
  }

  /** @param nameNow see {@link JobOwners.nameOf} */
  #view(job: Job, nameNow: string | undefined, summary: RunSummary | undefined, nowMs: number): Schedule {
    const { owners, waitOf } = this.#options;
    const problem = owners.problem(job, nameNow);
    const isDue = job.enabled && problem === undefined;
    const { nextMs, laterMs } = isDue ? this.#nextOf(job, nowMs) : neverFires;
    const wait = waitOf(job);
    const { last, skips = [] } = summary ?? {};
    const view = viewSpec(job);
    view.revision = this.#revisionOf(job);
    view.ownerName = job.ownerName === "" ? (nameNow ?? "") : job.ownerName;
    view.disabledReason = problem ?? "";
    if (wait !== undefined) view.waiting = viewWait(wait);
    if (nextMs !== undefined) view.nextRunUnix = BigInt(nextMs / 1000);
    if (laterMs !== undefined) view.laterRunUnix = BigInt(laterMs / 1000);
    if (last !== undefined) view.lastRun = viewRun(last);
    view.skipped = Math.min(
      maxCount,
      skips.reduce((sum, { count }) => sum + count, 0),
    );
    view.skips = skips.map(viewSkip);
    return view;
  }

  #revisionOf(job: Job): string {
    let revision = this.#revisions.get(job);
    if (revision === undefined) {
      revision = revisionText(job);
      this.#revisions.set(job, revision);
    }
    return revision;
  }

  #nextOf({ trigger, timeZone }: Job, nowMs: number): Firing {
    const zone = this.#options.zones.named(timeZone);
    // A zone that this runtime does not support; the job does not fire.
    if (zone === undefined) return neverFires;
    let firings = this.#firings.get(zone);
    if (firings === undefined) {
      firings = new WeakMap();
      this.#firings.set(zone, firings);
    }
    const known = firings.get(trigger);
    if (known !== undefined && nowMs >= known.fromMs && nowMs < known.untilMs) return known;
    const nextMs = nextFiring(trigger, zone, nowMs)?.unixMs;
    const laterMs =
      nextMs === undefined && trigger.event === undefined ? rareMs(trigger, zone, nowMs) : undefined;
    const found = { fromMs: nowMs, untilMs: nextMs ?? nowMs + neverMs, nextMs, laterMs };
    firings.set(trigger, found);
    return found;
  }
}

function rareMs(trigger: Trigger, zone: Zone, nowMs: number): number | undefined {
  for (const startMs of rareStarts(nowMs)) {
    const firing = nextFiring(trigger, zone, startMs);
    if (firing !== undefined) return firing.unixMs;
  }
  return undefined;
}

/** Field by field: passing an object to `create` would double the time for thousands of jobs. */
function viewSpec(job: Job): Schedule {
  const isUtc = job.timeZone === "UTC";
  const view = create(ScheduleSchema);
  view.id = job.id;
  view.trigger = job.trigger.text;
  view.utc = isUtc;
  view.timeZone = isUtc ? "" : job.timeZone;
  view.enabled = job.enabled;
  view.comment = job.comment;
  if (job.managedBy !== "") view.managedBy = job.managedBy;
  view.action = viewAction(job.action);
  view.timeout = job.timeoutSecs;
  if (job.keep !== undefined) view.keep = job.keep;
  view.owner = job.ownerUid;
  view.jitterSecs = job.jitterSecs;
  view.retries = job.retries;
  view.catchUp = job.catchUp;
  return view;
}

function viewAction({ storages, headers, ...rest }: JobAction): ScheduleAction {
  const view = Object.assign(create(ScheduleActionSchema), rest);
  if (storages !== undefined) view.storages = [...storages];
  if (headers !== undefined) view.headers = hideValues(headers);
  return view;
}

export function viewWait({ reason, scheduledAtMs, untilMs }: JobWait): ScheduleWait {
  return create(ScheduleWaitSchema, {
    reason,
    scheduledAt: timestampFromMs(scheduledAtMs),
    ...(untilMs !== undefined && { until: timestampFromMs(untilMs) }),
  });
}

function viewSkip({ reason, count, lastUnix }: JobSkip): ScheduleSkip {
  return create(ScheduleSkipSchema, { reason, count, lastUnix: BigInt(lastUnix) });
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
