/** Counts the firings that a stretch of time would have had; what many jobs have in common is computed once. */
import type { Job } from "../jobs/job.ts";
import { nextFiring } from "../trigger/next-firing.ts";
import type { Trigger } from "../trigger/trigger.ts";
import { minuteMs } from "../trigger/wall-slice.ts";
import type { Zone } from "../trigger/zone.ts";

export interface MissedFirings {
  readonly count: number;
  /** The newest of them, and the one before that, unix milliseconds; 0 when there is none. */
  readonly lastMs: number;
  readonly beforeMs: number;
}

export interface Stretch {
  /** The last minute that counts, unix milliseconds. */
  readonly toMs: number;
  /** Whether a minute was run in spite of it all; minutes since 1970. */
  readonly hasRun: (minute: number) => boolean;
}

/** Firings between two places where the work may be interrupted. */
const stride = 256;

export class MissedFiringCounter {
  readonly #stretch: Stretch;
  /** By zone, trigger and instant. */
  readonly #known = new Map<string, MissedFirings>();

  constructor(stretch: Stretch) {
    this.#stretch = stretch;
  }

  /** The firings after an instant, unix milliseconds, of a job as it is: none from before it was written. */
  *count({ trigger, updatedAtMs }: Job, zone: Zone, afterMs: number): Generator<undefined, MissedFirings> {
    // To the minute, as all firings are: so that more jobs have the same question.
    const fromMs = Math.floor(Math.max(afterMs, updatedAtMs) / minuteMs) * minuteMs;
    const question = `${zone.name} ${fromMs} ${trigger.text}`;
    let missed = this.#known.get(question);
    if (missed === undefined) {
      missed = yield* this.#walk(trigger, zone, fromMs);
      this.#known.set(question, missed);
    }
    return missed;
  }

  *#walk(trigger: Trigger, zone: Zone, afterMs: number): Generator<undefined, MissedFirings> {
    const { toMs, hasRun } = this.#stretch;
    let [count, lastMs, beforeMs, steps] = [0, 0, 0, 0];
    for (let atMs = afterMs; ;) {
      const firing = nextFiring(trigger, zone, atMs);
      if (firing === undefined || firing.unixMs > toMs) return { count, lastMs, beforeMs };
      atMs = firing.unixMs;
      if (!hasRun(atMs / minuteMs)) {
        count += 1;
        [beforeMs, lastMs] = [lastMs, atMs];
      }
      steps += 1;
      if (steps % stride === 0) yield;
    }
  }
}
