/** Fires jobs on events of the node, if their owners may see the event. */
import { maySee, type EventLog, type NodeEvent } from "../../observability/events/event-log.ts";
import type { Clock } from "../../lib/clock.ts";
import type { JobRegistry } from "../jobs/job-registry.ts";
import type { Job } from "../jobs/job.ts";
import type { DueJobs } from "./due-jobs.ts";

/**
 * Events are collected for this time, and a job fires once for all of them. A user can cause thousands of events per second, and each
 * may concern a thousand jobs.
 */
const collectMs = 100;

export interface EventJobsOptions {
  jobs: Pick<JobRegistry, "all">;
  due: Pick<DueJobs, "fire">;
  events: Pick<EventLog, "listen">;
  /** Whether an owner may see all users' events. */
  isRoot: (ownerUid: number) => boolean;
  clock: Pick<Clock, "nowMs" | "setTimer">;
}

/** Collected events of one kind that the same users may see. */
interface Collected {
  readonly example: NodeEvent;
  readonly subjects: Set<string>;
}

export class EventJobs implements Disposable {
  readonly #options: EventJobsOptions;
  readonly #subscription: Disposable;
  /** The last seen jobs, and those with an event trigger. */
  #all: readonly Job[] = [];
  #waiting: readonly Job[] = [];
  readonly #collected = new Map<string, Collected>();
  #timer: Disposable | undefined;

  constructor(options: EventJobsOptions) {
    this.#options = options;
    this.#subscription = options.events.listen((event) => this.#take(event));
  }

  #take(event: NodeEvent): void {
    const all = this.#options.jobs.all();
    if (all !== this.#all) {
      this.#all = all;
      this.#waiting = all.filter(({ trigger }) => trigger.event !== undefined);
    }
    if (this.#waiting.length === 0) return;
    const { kind, owner, isRoots = false } = event;
    const key = `${kind} ${owner} ${isRoots}`;
    const collected = this.#collected.get(key) ?? { example: event, subjects: new Set() };
    this.#collected.set(key, collected);
    collected.subjects.add(subjectOf(event));
    this.#timer ??= this.#options.clock.setTimer(collectMs, () => this.#fire());
  }

  #fire(): void {
    const { due, clock } = this.#options;
    const collected = [...this.#collected.values()];
    this.#collected.clear();
    this.#timer = undefined;
    for (const job of this.#waiting)
      if (collected.some((events) => this.#matches(job, events))) due.fire(job, clock.nowMs());
  }

  #matches({ trigger, enabled, ownerUid: uid }: Job, { example, subjects }: Collected): boolean {
    if (!enabled || trigger.event?.kind !== example.kind) return false;
    const { subject } = trigger.event;
    if (subject !== "" && !subjects.has(subject)) return false;
    return maySee(example, { uid, root: this.#options.isRoot(uid) });
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
    this.#timer?.[Symbol.dispose]();
  }
}

function subjectOf({ appId, subject = "" }: NodeEvent): string {
  return appId ?? subject;
}
