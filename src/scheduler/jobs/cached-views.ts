/** Caches views of listed jobs until a visible value changes, because lists are requested repeatedly. */
import { isDeepStrictEqual } from "node:util";
import type { Schedule } from "../../../gen/svc/v1/schedule_pb.ts";
import type { JobWait } from "../clock/due-jobs.ts";
import type { RunSummary } from "../runs/run-summaries.ts";
import { textLength, type Job } from "./job.ts";

/** The visible values of a job. */
export interface Shown {
  readonly job: Job;
  readonly ownerName: string;
  /** Why it does not run; empty if it can. */
  readonly problem: string;
  readonly nextMs: number | undefined;
  /** The first firing after a year, if none is earlier. */
  readonly laterMs: number | undefined;
  readonly wait: JobWait | undefined;
  readonly summary: RunSummary | undefined;
}

interface CachedView {
  readonly shown: Shown;
  readonly view: Schedule;
}

/** With its JSON, a view may use five times its text plus a kilobyte. */
const maxViews = 10_000;
const maxTextLength = 1_024;

export class CachedViews {
  readonly #views = new Map<Job, CachedView>();
  /** A ring buffer: the oldest entry is replaced first. */
  readonly #jobs: Job[] = [];
  #next = 0;

  get(shown: Shown): Schedule | undefined {
    const kept = this.#views.get(shown.job);
    return kept !== undefined && isSame(kept.shown, shown) ? kept.view : undefined;
  }

  /** @param view must not be modified afterwards */
  keep(shown: Shown, view: Schedule): void {
    const { job } = shown;
    if (textLength(job) > maxTextLength) return;
    const isKnown = this.#views.has(job);
    this.#views.set(job, { shown, view });
    if (isKnown) return;
    const oldest = this.#jobs[this.#next];
    if (oldest !== undefined) this.#views.delete(oldest);
    this.#jobs[this.#next] = job;
    this.#next = (this.#next + 1) % maxViews;
  }
}

/** Changed jobs and waits are new objects. */
function isSame(a: Shown, b: Shown): boolean {
  return (
    a.nextMs === b.nextMs &&
    a.laterMs === b.laterMs &&
    a.wait === b.wait &&
    a.ownerName === b.ownerName &&
    a.problem === b.problem &&
    (a.summary === b.summary || isDeepStrictEqual(a.summary, b.summary))
  );
}
