/** Counts the firings that a stretch of time would have had; what many jobs have in common is computed once. */
import type { Job } from "./job.ts";
import { nextFiring } from "./trigger/next-firing.ts";
import type { Trigger } from "./trigger/trigger.ts";
import { minuteMs } from "./trigger/wall-slice.ts";
import type { Zone } from "./trigger/zone.ts";

export interface MissedFirings {
  readonly count: number;
  /** The newest of them, unix milliseconds. */
  readonly lastMs: number;
}

export interface Stretch {
  /** Unix milliseconds: the first minute and the last one. */
  readonly fromMs: number;
  readonly toMs: number;
  /** Whether a minute was run in spite of it all; minutes since 1970. */
  readonly hasRun: (minute: number) => boolean;
}

/** Firings between two places where the work may be interrupted. */
const stride = 256;

export class MissedFiringCounter {
  readonly #stretch: Stretch;
  readonly #known = new Map<Zone, Map<Trigger, MissedFirings>>();

  constructor(stretch: Stretch) {
    this.#stretch = stretch;
  }

  /** The firings of a job as it is; none from before it was written. */
  *count(job: Job, zone: Zone): Generator<undefined, MissedFirings> {
    const { fromMs } = this.#stretch;
    if (job.updatedAtMs >= fromMs) return yield* this.#walk(job.trigger, zone, job.updatedAtMs);
    let known = this.#known.get(zone);
    if (known === undefined) this.#known.set(zone, (known = new Map<Trigger, MissedFirings>()));
    let missed = known.get(job.trigger);
    if (missed === undefined) {
      missed = yield* this.#walk(job.trigger, zone, fromMs - 1);
      known.set(job.trigger, missed);
    }
    return missed;
  }

  *#walk(trigger: Trigger, zone: Zone, afterMs: number): Generator<undefined, MissedFirings> {
    const { toMs, hasRun } = this.#stretch;
    let [count, lastMs, steps] = [0, 0, 0];
    for (let atMs = afterMs; ;) {
      const firing = nextFiring(trigger, zone, atMs);
      if (firing === undefined || firing.unixMs > toMs) return { count, lastMs };
      atMs = firing.unixMs;
      if (!hasRun(atMs / minuteMs)) {
        count += 1;
        lastMs = atMs;
      }
      steps += 1;
      if (steps % stride === 0) yield;
    }
  }
}
