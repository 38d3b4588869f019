/** The clock of a zone minute by minute, from `Intl`: independent of the engine. */

const minuteMs = 60_000;

/** The effect of a clock change on a minute. */
export interface Oddity {
  /** The clock has shown it before. */
  readonly isRepeat: boolean;
  /** The clock will show it again. */
  readonly comesAgain: boolean;
  /** Local times between the previous minute and this one, which the clock never shows. */
  readonly skipped: readonly number[];
}

/** The clock of one zone over a period. Local times are minutes since 1970 as if the clock showed UTC. */
export class WallClock {
  readonly zone: string;
  readonly fromMs: number;
  /** The times when the clock is put forward or back, soonest first. */
  readonly changes: { unixMs: number; isForward: boolean }[] = [];
  readonly #walls: Int32Array;
  readonly #oddities = new Map<number, Oddity>();

  /** @param fromMs and `toMs` are whole hours */
  constructor(zone: string, fromMs: number, toMs: number) {
    this.zone = zone;
    this.fromMs = fromMs;
    this.#walls = readWalls(zone, fromMs, toMs);
    for (let at = 1; at < this.#walls.length; at += 1) {
      const [before, now] = [this.wallAt(at - 1), this.wallAt(at)];
      if (now !== before + 1) this.#note(at, before + 1, now);
    }
  }

  /** Minutes in the period. */
  get length(): number {
    return this.#walls.length;
  }

  wallAt(index: number): number {
    return this.#walls[index] ?? NaN;
  }

  /** `undefined` for nearly all minutes. */
  oddityAt(index: number): Oddity | undefined {
    return this.#oddities.get(index);
  }

  unixMsAt(index: number): number {
    return this.fromMs + index * minuteMs;
  }

  indexOf(unixMs: number): number {
    return Math.floor((unixMs - this.fromMs) / minuteMs);
  }

  /** The clock shows `now` instead of `expected`. */
  #note(at: number, expected: number, now: number): void {
    this.changes.push({ unixMs: this.unixMsAt(at), isForward: now > expected });
    const skipped = Array.from({ length: Math.max(0, now - expected) }, (_, past) => expected + past);
    if (skipped.length > 0) this.#oddities.set(at, { isRepeat: false, comesAgain: false, skipped });
    const repeated = Math.max(0, expected - now);
    for (let past = 0; past < repeated; past += 1) {
      this.#oddities.set(at - repeated + past, { isRepeat: false, comesAgain: true, skipped });
      this.#oddities.set(at + past, { isRepeat: true, comesAgain: false, skipped });
    }
  }
}

function readWalls(zone: string, fromMs: number, toMs: number): Int32Array {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
  });
  function read(index: number): number {
    // Such as `3/29/2026, 03:00`.
    const words = format.format(fromMs + index * minuteMs).split(/[^0-9]+/);
    const [month = 0, day = 0, year = 0, hours = 0, minutes = 0] = words.map(Number);
    return Date.UTC(year, month - 1, day, hours, minutes) / minuteMs;
  }
  const walls = new Int32Array((toMs - fromMs) / minuteMs);
  /** Searches with the next smaller span where the clock is changed within one. All are in minutes. */
  function fill(from: number, to: number, [span = 1, ...shorter]: readonly number[]): void {
    let next = read(from);
    for (let at = from; at < to; at += span) {
      const [wall, end] = [next, Math.min(at + span, to)];
      next = read(end);
      if (span > 1 && next !== wall + end - at) fill(at, end, shorter);
      else for (let past = 0; past < end - at; past += 1) walls[at + past] = wall + past;
    }
  }
  fill(0, walls.length, [24 * 60, 60]);
  return walls;
}
