/** Tracks which minutes of the wall clock have run, across clock changes. Minutes are counted since 1970. */

/** Number of missed minutes that are still run. */
const maxMissed = 5;
/** How far the clock may be set back without running minutes again, in minutes. */
export const maxBack = 3 * 60;
/** Must cover both of the above. */
const ringSize = 256;
/** If a wrong clock is corrected within this time, minutes that have just run are not run again. */
const glitchMs = 10 * 60_000;

/** The result of reading the clock. */
export interface MinutePlan {
  /** Minutes to run now, in order. */
  readonly run: readonly number[];
  /** Minutes to skip, except those that have run; see `hasRun`. */
  readonly late?: { readonly from: number; readonly to: number };
}

const nothing: MinutePlan = { run: [] };

export class MinuteHistory {
  /** The last run minute of each slot. */
  readonly #lastRuns = new Float64Array(ringSize).fill(-1);
  /** Times of these runs by the monotonic clock. */
  readonly #ranAtMs = new Float64Array(ringSize);
  #seen: number;
  #monotonicMs: number;
  /** Earlier runs count only for the duration of a glitch, because the clock has been set far back since. */
  #resetAtMs = -Infinity;

  /** @param minute counts as run: its firings belong to the process that ran at its start */
  constructor(minute: number, monotonicMs: number) {
    this.#seen = minute;
    this.#monotonicMs = monotonicMs;
    this.#takeAll(minute, minute);
  }

  /** Processes the current minute of the clock. */
  advance(minute: number, monotonicMs: number): MinutePlan {
    const seen = this.#seen;
    this.#monotonicMs = monotonicMs;
    if (minute === seen) return nothing;
    this.#seen = minute;
    if (minute < seen) {
      if (seen - minute > maxBack) this.#resetAtMs = monotonicMs;
      return { run: this.#takeAll(minute, minute) };
    }
    const first = Math.max(seen + 1, minute - maxMissed);
    const run = this.#takeAll(first, minute);
    return first === seen + 1 ? { run } : { run, late: { from: seen + 1, to: first - 1 } };
  }

  hasRun(minute: number): boolean {
    const slot = minute % ringSize;
    if (this.#lastRuns[slot] !== minute) return false;
    const ranAtMs = this.#ranAtMs[slot] ?? 0;
    return ranAtMs >= this.#resetAtMs || this.#monotonicMs - ranAtMs <= glitchMs;
  }

  /** The minutes that have not run; marks them as run. */
  #takeAll(from: number, to: number): number[] {
    const taken: number[] = [];
    for (let minute = from; minute <= to; minute += 1) {
      if (this.hasRun(minute)) continue;
      this.#lastRuns[minute % ringSize] = minute;
      this.#ranAtMs[minute % ringSize] = this.#monotonicMs;
      taken.push(minute);
    }
    return taken;
  }
}
