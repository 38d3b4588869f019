/** Which minutes of the wall clock have had their turn, whatever the clock does (S 1.4.1, D21). Minutes are counted since 1970. */

/** How many missed minutes are made up for. */
const maxMissed = 5;
/** How far the clock may go back for what was run to stay run, in minutes. */
export const maxBack = 3 * 60;
/** Must cover what is made up for and what stays run. */
const ringSize = 256;
/** A clock that was far off and is right again within this time shows minutes anew that have just been run. */
const glitchMs = 10 * 60_000;

/** What a look at the clock leads to. */
export interface MinutePlan {
  /** To be run now, in this order. */
  readonly run: readonly number[];
  /** Missed for good; without those that were run, see `hasRun`. */
  readonly late?: { readonly from: number; readonly to: number };
}

const nothing: MinutePlan = { run: [] };

export class MinuteHistory {
  /** The minute that was run last in each slot. */
  readonly #ran = new Float64Array(ringSize).fill(-1);
  /** When, by the monotonic clock. */
  readonly #ranAtMs = new Float64Array(ringSize);
  #seen: number;
  #monotonicMs: number;
  /** What was run before counts only for as long as a glitch lasts: the clock has been set far back since. */
  #resetAtMs = -Infinity;

  /** @param minute counts as run: what it had to start belongs to whoever was there at its start */
  constructor(minute: number, monotonicMs: number) {
    this.#seen = minute;
    this.#monotonicMs = monotonicMs;
    this.#takeAll(minute, minute);
  }

  /** The clock shows `minute` now. */
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
    if (this.#ran[slot] !== minute) return false;
    const ranAtMs = this.#ranAtMs[slot] ?? 0;
    return ranAtMs >= this.#resetAtMs || this.#monotonicMs - ranAtMs <= glitchMs;
  }

  /** Those that were not run yet; they are now. */
  #takeAll(from: number, to: number): number[] {
    const taken: number[] = [];
    for (let minute = from; minute <= to; minute += 1) {
      if (this.hasRun(minute)) continue;
      this.#ran[minute % ringSize] = minute;
      this.#ranAtMs[minute % ringSize] = this.#monotonicMs;
      taken.push(minute);
    }
    return taken;
  }
}
