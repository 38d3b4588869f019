/** An evaluator with jobs and a clock of the test, which records what it fires and skips. */
import { Evaluator } from "../../../src/scheduler/clock/evaluator.ts";
import type { PolicyPass } from "../../../src/backups/policies/policy-pass.ts";
import { compareKeys, type Job, type JobSpec } from "../../../src/scheduler/jobs/job.ts";
import type { Run } from "../../../src/scheduler/runs/run.ts";
import { Zones } from "../../../src/triggers/zone.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { parseTrigger } from "./parse-trigger.ts";
import { spec } from "./world.ts";

export interface Fired {
  readonly id: string;
  /** Time of the firing, unix milliseconds. */
  readonly minuteMs: number;
  /** When it was fired, unix milliseconds. */
  readonly atMs: number;
}

export interface Skipped {
  readonly id: string;
  readonly reason: string;
  readonly count: number;
  readonly last: string;
}

export interface EvaluationOptions {
  start: string;
  jobs: readonly Job[];
  localZone?: string;
  backups?: Pick<PolicyPass, "run">;
  /** The time up to which records settle the firings of all jobs. */
  settledUntil?: string;
  /** The newest scheduled runs, by job ID. */
  lastRuns?: Readonly<Record<string, Run>>;
  /** Firings of a job with a recorded run, in order, such as `id 2026-01-01T00:00`. */
  onRecord?: readonly string[];
}

let writes = 0;

/** A job that has existed for long. */
export function job(
  id: string,
  trigger: string,
  changes: Partial<JobSpec> & { updatedAt?: string } = {},
): Job {
  const { updatedAt = "2000-01-01T00:00:00Z", ...rest } = changes;
  const parsed = { trigger: parseTrigger(trigger), timeZone: "UTC", ...rest };
  writes += 1;
  return {
    ownerUid: 0,
    ownerName: "",
    id,
    updatedAtMs: Date.parse(updatedAt) + writes,
    revision: writes,
    ...spec(parsed),
  };
}

export class Evaluation implements AsyncDisposable {
  readonly clock: FakeClock;
  readonly fired: Fired[] = [];
  readonly skipped: Skipped[] = [];
  /** Jobs whose newest run may need a retry. */
  readonly resumed: string[] = [];
  /** Firings that may be delayed by jitter, such as `id 2026-01-01T00:00`. */
  readonly resumedStarts: string[] = [];
  readonly errors: string[] = [];
  readonly evaluator: Evaluator;
  #jobs: readonly Job[];

  constructor(options: EvaluationOptions) {
    this.clock = new FakeClock(options.start);
    this.#jobs = options.jobs.toSorted(compareKeys);
    const { settledUntil = "1970-01-01T00:00:00Z", localZone = "UTC", onRecord = [] } = options;
    this.evaluator = new Evaluator({
      jobs: { all: () => this.#jobs, update: function* () {} },
      zones: new Zones({ local: () => localZone }),
      due: {
        fire: ({ id }, minuteMs) => this.fired.push({ id, minuteMs, atMs: this.clock.nowMs() }),
        resumeRetry: ({ id }) => this.resumed.push(id),
        resumeStart: ({ id }, atMs) => this.resumedStarts.push(`${id} ${minuteText(atMs)}`),
      },
      runs: {
        lastScheduled: ({ id }) => options.lastRuns?.[id],
        settledUntil: () => Date.parse(settledUntil),
        newestFiringMs: () => Date.parse(`${onRecord.at(-1)?.split(" ")[1] ?? "1970-01-01T00:00"}Z`),
        hasFired: ({ id }, minuteMs) => onRecord.includes(`${id} ${minuteText(minuteMs)}`),
      },
      skips: {
        add: ({ id }, reason, unixMs, count) =>
          this.skipped.push({ id, reason, count: count ?? 1, last: minuteText(unixMs) }),
      },
      backups: options.backups ?? { run: () => Promise.resolve([]) },
      clock: this.clock,
      log: { info: () => undefined, error: (_details, message) => this.errors.push(message) },
    });
    this.evaluator.start();
  }

  /** Like an edit of the registry. */
  setJobs(jobs: readonly Job[]): void {
    this.#jobs = jobs.toSorted(compareKeys);
  }

  /** Minutes of the firings so far, of all jobs or of one, in order; as `2026-01-01T00:00`. */
  minutes(id?: string): string[] {
    const fired = id === undefined ? this.fired : this.fired.filter((firing) => firing.id === id);
    return fired.map(({ minuteMs }) => minuteText(minuteMs));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.evaluator[Symbol.asyncDispose]();
  }
}

export function minuteText(unixMs: number): string {
  return new Date(unixMs).toISOString().slice(0, 16);
}

/** Each minute from the first to the last, as `minuteText` formats them. */
export function everyMinute(from: string, to: string): string[] {
  const [fromMs, toMs] = [Date.parse(`${from}Z`), Date.parse(`${to}Z`)];
  return Array.from({ length: (toMs - fromMs) / 60_000 + 1 }, (_, at) => minuteText(fromMs + at * 60_000));
}
