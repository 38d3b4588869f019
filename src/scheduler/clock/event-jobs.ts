/** Fires jobs on events of the node, if their owners may see the event. */
import { mayHear, type EventLog, type NodeEvent } from "../../observability/events/event-log.ts";
import type { Clock } from "../../lib/clock.ts";
import type { JobRegistry } from "../jobs/job-registry.ts";
import type { Job } from "../jobs/job.ts";
import type { DueJobs } from "./due-jobs.ts";

export interface EventJobsOptions {
  jobs: Pick<JobRegistry, "all">;
  due: Pick<DueJobs, "fire">;
  events: Pick<EventLog, "listen">;
  /** Whether an owner may see all users' events. */
  isRoot: (ownerUid: number) => boolean;
  clock: Pick<Clock, "nowMs">;
}

export class EventJobs implements Disposable {
  readonly #options: EventJobsOptions;
  readonly #subscription: Disposable;
  /** The last seen jobs, and those with an event trigger. */
  #all: readonly Job[] = [];
  #waiting: readonly Job[] = [];

  constructor(options: EventJobsOptions) {
    this.#options = options;
    this.#subscription = options.events.listen((event) => this.#take(event));
  }

  #take(event: NodeEvent): void {
    const { jobs, due, clock } = this.#options;
    const all = jobs.all();
    if (all !== this.#all) {
      this.#all = all;
      this.#waiting = all.filter(({ trigger }) => trigger.event !== undefined);
    }
    for (const job of this.#waiting) if (this.#isMeant(job, event)) due.fire(job, clock.nowMs());
  }

  #isMeant({ trigger, enabled, ownerUid: uid }: Job, event: NodeEvent): boolean {
    if (!enabled || trigger.event?.kind !== event.kind) return false;
    const { subject } = trigger.event;
    if (subject !== "" && subject !== (event.appId ?? event.subject ?? "")) return false;
    return mayHear(event, { uid, root: this.#options.isRoot(uid) });
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
  }
}
