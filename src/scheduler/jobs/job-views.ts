/** Jobs and runs as the contract shows them: header values hidden, with the next firing, the newest run and the skips. */
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
import type { FairTurns } from "../../lib/fair-turns.ts";
import type { Store } from "../../store/store.ts";
import { hideValues } from "./header-rules.ts";
import type { JobOwners } from "./job-owners.ts";
import type { JobWait } from "../clock/due-jobs.ts";
import { revisionText, type Job, type JobAction, type JobKey } from "./job.ts";
import { keyText } from "./job-key.ts";
import { KeptViews, type Shown } from "./kept-views.ts";
import { RunSummaries, type JobSkip } from "../runs/run-summaries.ts";
import type { Run } from "../runs/run.ts";
import { nextFiring } from "../trigger/next-firing.ts";
import type { Trigger } from "../trigger/trigger.ts";
import type { Zone, Zones } from "../trigger/zone.ts";

export interface JobViewsOptions {
  store: Store;
  zones: Zones;
  owners: JobOwners;
  /** What a job that is due waits for. */
  waitOf: (key: JobKey) => JobWait | undefined;
  now: () => number;
  turns: Pick<FairTurns, "wait">;
}

/** A trigger's next firing in a zone, and for which instants that is the answer. */
interface KnownFiring {
  readonly fromMs: number;
  /** Exclusive. */
  readonly untilMs: number;
  readonly nextMs: number | undefined;
}

/** After so long others have their turn: what fires next in a zone that was not asked about yet takes milliseconds. */
const sliceMs = 2;
/** Of an `uint32`. */
const maxCount = 2 ** 32 - 1;
/** How long it is believed that a trigger fires never. */
const neverMs = 60_000;

export class JobViews {
  readonly #options: JobViewsOptions;
  readonly #revisions = new WeakMap<Job, string>();
  /** Many jobs have the same trigger in the same zone, and keep it when they are written. */
  readonly #firings = new WeakMap<Zone, WeakMap<Trigger, KnownFiring>>();
  readonly #kept = new KeptViews();
  readonly #summaries: RunSummaries;

  constructor(options: JobViewsOptions) {
    this.#options = options;
    this.#summaries = new RunSummaries(options.store);
  }

  /** A view of the caller's own. */
  async one(job: Job): Promise<Schedule> {
    const [shown] = await this.#shown([job], "");
    if (shown === undefined) throw new Error("a job has no view");
    return this.#make(shown);
  }

  /**
   * Views that nobody may change: of a job of which nothing that shows is another since it was last listed, the very same.
   * @param jobs by owner and id
   * @param share in whose turns
   */
  async many(jobs: readonly Job[], share: string): Promise<{ views: Schedule[]; areKept: boolean }> {
    let areKept = true;
    const views = (await this.#shown(jobs, share)).map((shown) => {
      const kept = this.#kept.get(shown);
      if (kept !== undefined) return kept;
      areKept = false;
      const view = this.#make(shown);
      this.#kept.keep(shown, view);
      return view;
    });
    return { views, areKept };
  }

  /** @param jobs by owner and id */
  async #shown(jobs: readonly Job[], share: string): Promise<Shown[]> {
    const { owners, waitOf, now, turns } = this.#options;
    const uids = [...new Set(jobs.map(({ ownerUid }) => ownerUid))];
    const names = new Map(
      await Promise.all(uids.map(async (uid) => [uid, await owners.nameOf(uid)] as const)),
    );
    const summaries = this.#summaries.of(jobs);
    const nowMs = now();
    let beganMs = performance.now();
    const shown: Shown[] = [];
    for (const job of jobs) {
      if (performance.now() - beganMs > sliceMs) {
        await turns.wait(share);
        beganMs = performance.now();
      }
      const name = names.get(job.ownerUid);
      const problem = owners.problem(job, name);
      const isDue = job.enabled && problem === undefined;
      shown.push({
        job,
        ownerName: job.ownerName === "" ? (name ?? "") : job.ownerName,
        problem: problem ?? "",
        nextMs: isDue ? this.#nextMs(job, nowMs) : undefined,
        wait: waitOf(job),
        summary: summaries.size === 0 ? undefined : summaries.get(keyText(job)),
      });
    }
    return shown;
  }

  #make({ job, ownerName, problem, nextMs, wait, summary }: Shown): Schedule {
    const { last, skips = [] } = summary ?? {};
    const view = viewSpec(job);
    view.revision = this.#revisionOf(job);
    view.ownerName = ownerName;
    view.disabledReason = problem;
    if (wait !== undefined) view.waiting = viewWait(wait);
    if (nextMs !== undefined) view.nextRunUnix = BigInt(nextMs / 1000);
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

  #nextMs({ trigger, timeZone }: Job, nowMs: number): number | undefined {
    const zone = this.#options.zones.named(timeZone);
    // One that this runtime no longer knows: the job does not fire either.
    if (zone === undefined) return undefined;
    let firings = this.#firings.get(zone);
    if (firings === undefined) {
      firings = new WeakMap();
      this.#firings.set(zone, firings);
    }
    const known = firings.get(trigger);
    if (known !== undefined && nowMs >= known.fromMs && nowMs < known.untilMs) return known.nextMs;
    const nextMs = nextFiring(trigger, zone, nowMs)?.unixMs;
    firings.set(trigger, { fromMs: nowMs, untilMs: nextMs ?? nowMs + neverMs, nextMs });
    return nextMs;
  }
}

/** Field by field, as lists have thousands of them: an object for `create` to look through costs as much again. */
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
