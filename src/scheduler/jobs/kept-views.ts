/** Views of jobs that were listed before, for as long as nothing that shows of a job is another: lists are asked for again and again. */
import { isDeepStrictEqual } from "node:util";
import type { Schedule } from "../../../gen/svc/v1/schedule_pb.ts";
import type { JobWait } from "../clock/due-jobs.ts";
import type { RunSummary } from "../runs/run-summaries.ts";
import { textLength, type Job } from "./job.ts";

/** All that shows of a job. */
export interface Shown {
  readonly job: Job;
  readonly ownerName: string;
  /** Why it does not run; empty when it does. */
  readonly problem: string;
  readonly nextMs: number | undefined;
  readonly wait: JobWait | undefined;
  readonly summary: RunSummary | undefined;
}

interface KeptView {
  readonly shown: Shown;
  readonly view: Schedule;
}

/** With its JSON a view may take five times its text and a kilobyte more. */
const maxViews = 10_000;
const maxTextLength = 1_024;

export class KeptViews {
  readonly #views = new Map<Job, KeptView>();
  /** A ring: the next one takes the place of the one that was kept first. */
  readonly #jobs: Job[] = [];
  #next = 0;

  get(shown: Shown): Schedule | undefined {
    const kept = this.#views.get(shown.job);
    return kept !== undefined && isSame(kept.shown, shown) ? kept.view : undefined;
  }

  /** @param view nobody changes it from now on */
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

/** A job that changed is another object, and so is what one waits for. */
function isSame(a: Shown, b: Shown): boolean {
  return (
    a.nextMs === b.nextMs &&
    a.wait === b.wait &&
    a.ownerName === b.ownerName &&
    a.problem === b.problem &&
    (a.summary === b.summary || isDeepStrictEqual(a.summary, b.summary))
  );
}
