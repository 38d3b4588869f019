/** The scheduled jobs, as called by handlers. Another user's job is not found. */
import { create } from "@bufbuild/protobuf";
import {
  ListSchedulesResponseSchema,
  type ListSchedulesResponse,
  type PreviewScheduleRequest,
  type Schedule,
  type ScheduleAction,
  type ScheduleRun,
  type ScheduleWait,
} from "../../gen/svc/v1/schedule_pb.ts";
import { SvcError } from "../errors.ts";
import type { FairQueue } from "../lib/fair-queue.ts";
import { decodePageToken, encodePageToken, invalidPageToken } from "../apps/records/page-token.ts";
import type { Store } from "../store/store.ts";
import type { JobWait } from "./clock/due-jobs.ts";
import {
  keyOfText,
  keyText,
  compareKeys,
  indexAfter,
  textLength,
  type Job,
  type JobKey,
} from "./jobs/job.ts";
import { isOf, type JobCaller, type JobRegistry } from "./jobs/job-registry.ts";
import type { JobOwners } from "./jobs/job-owners.ts";
import { JobRules, readAction, type JobRequest } from "./jobs/job-rules.ts";
import { JobViews, viewRun, viewWait } from "./jobs/job-views.ts";
import { JobWriter, type OwnerBounds, type SpecMaker, type WriteCondition } from "./jobs/job-writer.ts";
import { ManagedJobs } from "./jobs/managed-jobs.ts";
import { previewFirings, type Preview } from "./clock/preview.ts";
import type { RunLog } from "./runs/run-log.ts";
import type { Runner } from "./runs/runner.ts";
import { followRuns, runInForeground, type FollowedRuns, type ForegroundEvent } from "./runs/run-streams.ts";
import type { Zones } from "../triggers/zone.ts";
import { Violations } from "./jobs/violations.ts";
import type { Log } from "../lib/log.ts";

export interface SchedulesOptions {
  store: Store;
  registry: JobRegistry;
  runs: RunLog;
  runner: Pick<Runner, "start" | "follow" | "cancel" | "finishing">;
  zones: Zones;
  /** The daemon's uid, which owns root's jobs. */
  selfUid: number;
  /** Why a due job waits. */
  waitOf: (key: JobKey) => JobWait | undefined;
  owners: JobOwners;
  /** Whether there is an app with this ID that the owner's jobs may act on. */
  hasApp: (ownerUid: number, appId: string) => boolean;
  now: () => number;
  fairQueue: Pick<FairQueue, "wait">;
  log: Pick<Log, "warn">;
}

export interface ListOptions {
  /** Only jobs of this manager; empty for the operator, absent for all. */
  managedBy?: string | undefined;
  /** Only jobs that act on the app with this ID; empty for all. */
  app?: string;
  /** 1 to 1000. */
  limit: number;
  /** Empty for the first page. */
  pageToken: string;
}

export interface RunsOptions {
  /** 1 to 50. */
  limit?: number | undefined;
  /** Empty for the first page. */
  pageToken: string;
}

/** Identifies a job in a request. */
export interface JobName {
  readonly id: string;
  /** Root only: the owner's uid; default: the caller. */
  readonly owner?: number | undefined;
}

/** Jobs per response. */
const maxPageSize = 1_000;
/**
 * Approximate characters per response, a few milliseconds of work. A thousand jobs with the longest commands
 * would have 65 MB and take a second.
 */
const maxPageChars = 1 << 18;
/** Limits per user, because jobs are cached in memory. */
const maxUsersJobs: OwnerBounds = { jobs: 1_000, chars: 8 << 20 };
const maxRootsJobs: OwnerBounds = { jobs: 100_000, chars: 256 << 20 };
/** Warnings per response. */
const maxWarnings = 64;

export class Schedules {
  readonly #options: SchedulesOptions;
  readonly #rules: JobRules;
  readonly #views: JobViews;
  readonly #writer: JobWriter;
  readonly #managed: ManagedJobs;

  constructor(options: SchedulesOptions) {
    this.#options = options;
    this.#rules = new JobRules(options.zones, options.registry.triggers);
    this.#views = new JobViews(options);
    this.#writer = new JobWriter(options);
    this.#managed = new ManagedJobs({ registry: options.registry, rules: this.#rules, writer: this.#writer });
  }

  /**
   * A page of the caller's jobs, by owner and id.
   * @throws SvcError `invalid_request` for an invalid page token
   */
  async list(
    caller: JobCaller,
    { managedBy, app = "", limit, pageToken }: ListOptions,
  ): Promise<ListSchedulesResponse> {
    const after = pageToken === "" ? undefined : keyOfText(decodePageToken(pageToken));
    const { registry } = this.#options;
    await registry.untilCurrent();
    const { jobs, isLast } = pageOf(
      registry.visible(caller),
      after,
      limit,
      (job) =>
        (managedBy === undefined || job.managedBy === managedBy) && (app === "" || job.action.app === app),
    );
    const last = jobs.at(-1);
    const page = create(ListSchedulesResponseSchema, {
      nextPageToken: last === undefined || isLast ? "" : encodePageToken(keyText(last)),
    });
    // The views are messages already; `create` would check each of them again.
    page.schedules = await this.#views.many(jobs, shareOf(caller));
    return page;
  }

  async get(name: JobName, caller: JobCaller): Promise<Schedule> {
    return this.#views.one(this.#find(name, caller));
  }

  /**
   * Adds or replaces a job. A missing app is rejected, unless the job already named it or has a manager; the
   * response then has a warning.
   * @throws SvcError `invalid_request` with one violation per field; see {@link JobWriter.upsert}
   */
  async upsert(name: JobName, request: JobRequest & WriteCondition, caller: JobCaller): Promise<Schedule> {
    const { registry, selfUid, owners } = this.#options;
    const key = this.#key(name, caller);
    const isRoots = key.ownerUid === selfUid;
    const ownerName = isRoots ? "" : await owners.nameOf(key.ownerUid);
    if (ownerName === undefined) {
      throw new SvcError("unavailable", `failed to look up uid ${key.ownerUid}; try again`);
    }
    const make: SpecMaker = (stored) => {
      if (stored !== undefined && !caller.root && !isOf(stored, caller)) throw formerUsers(stored);
      const violations = new Violations();
      const spec = this.#rules.read(request, { path: "", stored, isRoots }, violations);
      if (!isRoots && ownerName === "") violations.add("owner", `${key.ownerUid} is not a user of this host`);
      const { app } = spec.action;
      const isOperators = spec.managedBy === "" && stored?.action.app !== app;
      if (isOperators && this.#lacksApp(key.ownerUid, app)) violations.add("action.app", noApp(app));
      violations.check();
      return spec;
    };
    await this.#writer.upsert({ ...key, ownerName }, make, request, isRoots ? maxRootsJobs : maxUsersJobs);
    const job = registry.find(key, caller);
    const view = await this.#views.one(job);
    const { app } = job.action;
    if (this.#lacksApp(key.ownerUid, app)) view.warnings.push(noApp(app));
    return view;
  }

  /** Removes a job with its runs; the runner stops a current run. */
  async remove(name: JobName, caller: JobCaller): Promise<void> {
    const { ownerUid, id } = this.#find(name, caller);
    await this.#writer.remove({ ownerUid, id });
  }

  /**
   * Replaces all of root's jobs that `managedBy` manages, and returns their first page. Apps may be installed
   * later; the response warns about missing ones.
   * @throws SvcError see {@link ManagedJobs.replace}
   */
  async replaceManaged(
    managedBy: string,
    schedules: readonly Schedule[],
    caller: JobCaller,
  ): Promise<ListSchedulesResponse> {
    const { selfUid } = this.#options;
    await this.#managed.replace(selfUid, managedBy, schedules, maxRootsJobs);
    const page = await this.list(caller, { managedBy, limit: maxPageSize, pageToken: "" });
    for (const { id, action } of schedules) {
      if (page.warnings.length === maxWarnings) break;
      const app = action?.app;
      if (this.#lacksApp(selfUid, app)) page.warnings.push(`job "${id}": ${noApp(app)}`);
    }
    return page;
  }

  /** IDs of the enabled jobs visible to the caller that act on an app. */
  async actingOn(appId: string, caller: JobCaller): Promise<string[]> {
    await this.#options.registry.untilCurrent();
    const jobs = this.#options.registry.visible(caller);
    return jobs.filter(({ enabled, action }) => enabled && action.app === appId).map(({ id }) => id);
  }

  /** Starts a run, or returns the current one. */
  async run(name: JobName, caller: JobCaller): Promise<{ started: boolean; run: ScheduleRun }> {
    const { started, run } = await this.#options.runner.start(this.#find(name, caller), manual);
    return { started, run: viewRun(run) };
  }

  /** A run in the foreground. It is canceled when `signal` aborts or the reader leaves, if this call started it. */
  runStream(name: JobName, caller: JobCaller, signal: AbortSignal): AsyncIterable<ForegroundEvent> {
    const { runner, runs, log } = this.#options;
    return runInForeground(runner, runs, this.#find(name, caller), signal, (error) =>
      log.warn({ err: error, job: name.id }, "failed to cancel a run after its client disconnected"),
    );
  }

  /**
   * Cancels the current run.
   * @throws SvcError `failed_precondition` if there is none, or another process executes it
   */
  async cancel(name: JobName, caller: JobCaller): Promise<ScheduleRun> {
    const { runs, runner } = this.#options;
    const job = this.#find(name, caller);
    const running = runs.runningOf(job) ?? runner.finishing(job);
    if (running === undefined) throw new SvcError("not_possible", `no run of job "${job.id}" is running`);
    return viewRun(await runner.cancel(running.id));
  }

  /** A page of runs, newest first. @throws SvcError `invalid_request` for an invalid page token */
  runs(
    name: JobName,
    { limit, pageToken }: RunsOptions,
    caller: JobCaller,
  ): { runs: ScheduleRun[]; waiting?: ScheduleWait; nextPageToken: string } {
    const { runs, waitOf } = this.#options;
    const before = pageToken === "" ? undefined : runOfPageToken(pageToken);
    const job = this.#find(name, caller);
    const wait = waitOf(job);
    const page = runs.page(job, limit, before);
    const last = page.runs.at(-1);
    return {
      runs: page.runs.map(viewRun),
      ...(wait !== undefined && { waiting: viewWait(wait) }),
      nextPageToken: last === undefined || page.isLast ? "" : encodePageToken(String(last.number)),
    };
  }

  /**
   * Yields runs at their start and end, as {@link followRuns}.
   * @param name a job; with an empty ID, all jobs visible to the caller
   */
  followRuns(
    name: JobName,
    caller: JobCaller,
    { sinceMs, signal }: Pick<FollowedRuns, "sinceMs" | "signal">,
  ): AsyncIterable<ScheduleRun> {
    const job = name.id === "" ? undefined : this.#find(name, caller);
    const ownerUid = name.owner === undefined ? undefined : this.#key(name, caller).ownerUid;
    const matches = (key: JobKey): boolean => {
      if (job !== undefined) return compareKeys(key, job) === 0;
      return ownerUid === undefined ? caller.root || key.ownerUid === caller.uid : key.ownerUid === ownerUid;
    };
    return followRuns(this.#options.runs, { matches, sinceMs, signal });
  }

  /**
   * Previews a trigger's firings.
   * @throws SvcError `invalid_request` for an invalid trigger, time zone or action; `root_required` for another owner
   */
  async preview(request: PreviewScheduleRequest, caller: JobCaller, signal: AbortSignal): Promise<Preview> {
    const { zones, now, fairQueue } = this.#options;
    const violations = new Violations();
    const trigger = this.#rules.readTrigger(request.trigger, "", violations);
    const zoneName = this.#rules.readTimeZone(request.utc, request.timeZone, "", violations);
    if (request.action !== undefined) this.#checkAction(request.action, request.owner, caller, violations);
    violations.check();
    const zone = zoneName === "" ? zones.local() : zones.get(zoneName);
    const afterMs = request.afterUnix === undefined ? now() : Number(request.afterUnix) * 1000;
    return previewFirings(trigger, zone, {
      ...{ afterMs, count: request.count },
      yieldToOthers: () => fairQueue.wait(shareOf(caller)),
      signal,
    });
  }

  #find(name: JobName, caller: JobCaller): Job {
    return this.#options.registry.find(this.#key(name, caller), caller);
  }

  /**
   * Jobs created by root belong to the daemon's user, with whose rights they run. Unlike for apps, `sudo`
   * does not assign them to the invoking user.
   */
  #key({ id, owner }: JobName, caller: JobCaller): JobKey {
    const own = caller.root ? this.#options.selfUid : caller.uid;
    if (owner !== undefined && owner !== own && !caller.root) {
      throw new SvcError("root_required", `owner ${owner} is another user; only root may set it`);
    }
    return { ownerUid: owner ?? own, id };
  }

  #checkAction(
    action: ScheduleAction,
    owner: number | undefined,
    caller: JobCaller,
    violations: Violations,
  ): void {
    const { ownerUid } = this.#key({ id: "", owner }, caller);
    const isRoots = ownerUid === this.#options.selfUid;
    const { app } = readAction(action, { path: "", stored: undefined, isRoots }, violations);
    if (this.#lacksApp(ownerUid, app)) violations.add("action.app", noApp(app));
  }

  #lacksApp(ownerUid: number, app: string | undefined): app is string {
    return app !== undefined && app !== "" && !this.#options.hasApp(ownerUid, app);
  }
}

function formerUsers({ id, ownerUid }: Job): SvcError {
  return new SvcError(
    "already_exists",
    `job "${id}" belongs to a former user with the uid ${ownerUid}; choose another ID, or ask root to remove it`,
  );
}

function noApp(app: string): string {
  return `no app "${app}"`;
}

/** The jobs after `after` that fit on a page, at least one. @param jobs by owner and ID */
function pageOf(
  jobs: readonly Job[],
  after: JobKey | undefined,
  limit: number,
  matches: (job: Job) => boolean,
): { jobs: readonly Job[]; isLast: boolean } {
  const page: Job[] = [];
  let remaining = maxPageChars;
  for (let at = after === undefined ? 0 : indexAfter(jobs, after); at < jobs.length; at += 1) {
    const job = jobs[at];
    if (job === undefined || !matches(job)) continue;
    if (page.length === limit || remaining <= 0) return { jobs: page, isLast: false };
    page.push(job);
    remaining -= textLength(job);
  }
  return { jobs: page, isLast: true };
}

/** The number of the last run of the previous page. @throws SvcError `invalid_request` */
function runOfPageToken(pageToken: string): number {
  const number = decodePageToken(pageToken);
  if (!/^\d{1,15}$/.test(number)) throw invalidPageToken();
  return Number(number);
}

const manual = { trigger: "manual", attempt: 1 } as const;

/** Name of the share for computing firings. */
function shareOf({ uid }: JobCaller): string {
  return `jobs of uid ${uid}`;
}
