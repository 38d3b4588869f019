/** Views of jobs that were listed before, for as long as nothing that shows of a job is another: lists are asked for again and again. */
import type { Schedule } from "../../../gen/svc/v1/schedule_pb.ts";
import { textLength, type Job } from "./job.ts";

interface KeptView {
  /** All that it was made of besides the job, which is another object once it changed. */
  readonly state: string;
  readonly view: Schedule;
}

/** With its JSON a view may take five times its text and a kilobyte more. */
const maxViews = 10_000;
const maxTextLength = 1_024;

export class KeptViews {
  /** The one that was kept first is first. */
  readonly #views = new Map<Job, KeptView>();

  get(job: Job, state: string): Schedule | undefined {
    const kept = this.#views.get(job);
    return kept?.state === state ? kept.view : undefined;
  }

  /** @param view nobody changes it from now on */
  keep(job: Job, state: string, view: Schedule): void {
    if (textLength(job) > maxTextLength) return;
    this.#views.set(job, { state, view });
    if (this.#views.size <= maxViews) return;
    for (const oldest of this.#views.keys()) {
      this.#views.delete(oldest);
      break;
    }
  }
}
