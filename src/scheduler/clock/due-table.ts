/**
 * An index of all jobs that finds the due ones of a minute. Minutes and hours are bits in flat arrays, so
 * most jobs need only two bit tests; the others use the full matcher.
 */
import { compareKeys, type Job } from "../jobs/job.ts";
import { isDue, viewMinute, type MinuteView } from "../../triggers/matcher.ts";
import type { Zones } from "../../triggers/zone.ts";

/** Jobs between two interruption points, about 50 µs. */
const stride = 4_096;

/** One entry per job, in the order of the registry. */
interface Columns {
  minutesLow: Int32Array;
  minutesHigh: Int32Array;
  hours: Int32Array;
  /** Index of the time zone. */
  zone: Uint16Array;
}

/** The local time of a zone, as masks for the bit tests. */
interface ZoneMinute {
  readonly view: MinuteView;
  readonly minutesLow: number;
  readonly minutesHigh: number;
  readonly hours: number;
}

export class DueTable {
  readonly #zones: Zones;
  readonly #zoneIndexes = new Map<string, number>();
  #jobs: readonly Job[] = [];
  #columns = createColumns(0);
  /** The previous columns, reused for the next update to avoid allocations. */
  #spare = createColumns(0);

  constructor(zones: Zones) {
    this.#zones = zones;
  }

  /** The jobs of the last update. */
  get jobs(): readonly Job[] {
    return this.#jobs;
  }

  /** Updates the index; entries of unchanged job objects are copied. */
  *fill(jobs: readonly Job[]): Generator<undefined, void> {
    if (jobs === this.#jobs) return;
    const from = this.#columns;
    const to = this.#spare.hours.length < jobs.length ? createColumns(roomFor(jobs.length)) : this.#spare;
    let old = 0;
    for (let start = 0; start < jobs.length; start += stride) {
      const end = Math.min(start + stride, jobs.length);
      old = this.#fillRows(jobs, { start, end, old, to });
      yield;
    }
    this.#jobs = jobs;
    this.#columns = to;
    this.#spare = from;
  }

  /** Calls `fire` with each job that is due in the minute that starts at `minuteMs`, unix milliseconds. */
  *pass(minuteMs: number, fire: (job: Job) => void): Generator<undefined, void> {
    const clocks: (ZoneMinute | undefined)[] = [];
    for (const name of this.#zoneIndexes.keys()) {
      clocks.push(this.#zoneMinute(name, minuteMs));
      // The first computation of a zone's year takes a millisecond or two.
      yield;
    }
    const { minutesLow, minutesHigh, hours, zone } = this.#columns;
    const jobs = this.#jobs;
    for (let start = 0; start < jobs.length; start += stride) {
      const end = Math.min(start + stride, jobs.length);
      for (let at = start; at < end; at += 1) {
        const clock = clocks[zone[at] ?? 0];
        if (clock === undefined) continue;
        const low = (minutesLow[at] ?? 0) & clock.minutesLow;
        const high = (minutesHigh[at] ?? 0) & clock.minutesHigh;
        if ((low | high) === 0 || ((hours[at] ?? 0) & clock.hours) === 0) continue;
        const job = jobs[at];
        if (job === undefined || !isDue(job.trigger, clock.view)) continue;
        fire(job);
        yield;
      }
      yield;
    }
  }

  #zoneMinute(name: string, minuteMs: number): ZoneMinute | undefined {
    const zone = this.#zones.named(name);
    if (zone === undefined) return undefined;
    const view = viewMinute(zone, minuteMs);
    const slices = [view.now, ...view.skipped];
    return {
      view,
      minutesLow: slices.reduce((bits, slice) => bits | slice.minutesLow, 0),
      minutesHigh: slices.reduce((bits, slice) => bits | slice.minutesHigh, 0),
      hours: slices.reduce((bits, slice) => bits | slice.hour, 0),
    };
  }

  /** Fills rows, and returns the position in the previous jobs, which have the same order. */
  #fillRows(
    jobs: readonly Job[],
    { start, end, old: from, to }: { start: number; end: number; old: number; to: Columns },
  ): number {
    const known = this.#jobs;
    let old = from;
    for (let at = start; at < end; at += 1) {
      const job = jobs[at];
      if (job === undefined) continue;
      while (known[old] !== job && isBefore(known[old], job)) old += 1;
      if (known[old] === job) copyRow(this.#columns, old, to, at);
      else this.#writeRow(to, at, job);
    }
    return old;
  }

  #writeRow(columns: Columns, at: number, { trigger, timeZone, enabled }: Job): void {
    columns.minutesLow[at] = enabled ? trigger.minutesLow : 0;
    columns.minutesHigh[at] = enabled ? trigger.minutesHigh : 0;
    columns.hours[at] = trigger.hours;
    const index = this.#zoneIndexes.get(timeZone) ?? this.#zoneIndexes.size;
    this.#zoneIndexes.set(timeZone, index);
    columns.zone[at] = index;
  }
}

function createColumns(length: number): Columns {
  return {
    minutesLow: new Int32Array(length),
    minutesHigh: new Int32Array(length),
    hours: new Int32Array(length),
    zone: new Uint16Array(length),
  };
}

/** Rounded up, so that single additions do not reallocate the arrays. */
function roomFor(length: number): number {
  return Math.ceil(length * 1.25) + 64;
}

function copyRow(from: Columns, old: number, to: Columns, at: number): void {
  to.minutesLow[at] = from.minutesLow[old] ?? 0;
  to.minutesHigh[at] = from.minutesHigh[old] ?? 0;
  to.hours[at] = from.hours[old] ?? 0;
  to.zone[at] = from.zone[old] ?? 0;
}

function isBefore(known: Job | undefined, job: Job): boolean {
  return known !== undefined && compareKeys(known, job) < 0;
}
