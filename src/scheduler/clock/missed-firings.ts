/** Counts the firings in a range of time; jobs with the same trigger share the computation. */
import type { Job } from "../jobs/job.ts";
import { nextFiring } from "../../triggers/next-firing.ts";
import type { Trigger } from "../../triggers/trigger.ts";
import { minuteMs } from "../../triggers/wall-slice.ts";
import type { Zone } from "../../triggers/zone.ts";

export interface MissedFirings {
  readonly count: number;
  /** The newest firing, and the one before, unix milliseconds; 0 for none. */
  readonly lastMs: number;
  readonly beforeMs: number;
}

export interface Stretch {
  /** The last minute of the range, unix milliseconds. */
  readonly toMs: number;
  /** Whether a minute has run; minutes since 1970. */
  readonly hasRun: (minute: number) => boolean;
}

/** Firings between two interruption points. */
const stride = 256;

export class MissedFiringCounter {
  readonly #stretch: Stretch;
  /** By zone, trigger and instant. */
  readonly #known = new Map<string, MissedFirings>();

  constructor(stretch: Stretch) {
    this.#stretch = stretch;
  }

  /** Counts a job's firings after `afterMs`, unix milliseconds, without those before its last change. */
  *count({ trigger, updatedAtMs }: Job, zone: Zone, afterMs: number): Generator<undefined, MissedFirings> {
    // Rounded to the minute, like all firings, so that more jobs share the result.
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
