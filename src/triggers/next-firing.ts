/** Computes when a trigger fires next, and so the next run of a job. Skips months, days and hours that cannot match. */
import type { Trigger } from "./trigger.ts";
import { nextWallMinute } from "./wall-search.ts";
import { dayMs, minuteMs, overlaps, slicesBetween } from "./wall-slice.ts";
import type { Zone, ZoneSpan } from "./zone.ts";

export interface Firing {
  /** The start of the minute, in milliseconds since 1970. */
  readonly unixMs: number;
  /**
   * The effect of daylight saving on a fixed-time trigger. `gap`: it fires right after the forward change that skips its time.
   * `repeated`: its time occurs twice, and it fires the first time. Otherwise empty.
   */
  readonly anomaly: "" | "gap" | "repeated";
}

/** One year, which contains the next firing of most triggers. */
const horizonMs = 366 * dayMs;
/** The longest wait for a date: the years between 29 February 1896 and 1904, plus one. */
const rareHorizons = 9;

/**
 * The first firing strictly after `afterMs` (milliseconds since 1970) and within 366 days; undefined if there is none.
 * It equals the next minute for which `isDue` returns true.
 */
export function nextFiring(trigger: Trigger, zone: Zone, afterMs: number): Firing | undefined {
  const lastMs = afterMs + horizonMs;
  let fromMs = (Math.floor(afterMs / minuteMs) + 1) * minuteMs;
  while (fromMs <= lastMs) {
    const span = zone.spanAt(fromMs);
    const firing = firstWithin(trigger, span, fromMs, Math.min(span.endMs, lastMs + 1));
    if (firing !== undefined) return firing;
    fromMs = span.endMs;
  }
  return undefined;
}

/**
 * One-year spans to search for the next firing of a rare trigger, such as 29 February. Pass each to {@link nextFiring} until one
 * contains it. A year of a new time zone takes milliseconds, so callers can yield to the event loop between spans.
 */
export function* rareStarts(afterMs: number): Generator<number, void> {
  for (let year = 0; year < rareHorizons; year++) yield afterMs + year * horizonMs;
}

/** The first firing from `fromMs` to before `toMs`, both within the span. */
function firstWithin(trigger: Trigger, span: ZoneSpan, fromMs: number, toMs: number): Firing | undefined {
  const { offsetMs } = span;
  const isFixed = trigger.kind === "fixed";
  const searchMs = isFixed ? Math.max(fromMs, span.repeatUntilMs) : fromMs;
  const wallMs = nextWallMinute(trigger, searchMs + offsetMs, toMs + offsetMs);
  const unixMs = wallMs === undefined ? undefined : wallMs - offsetMs;
  if (isFixed && fromMs === span.startMs && unixMs !== fromMs && isSkipped(trigger, span)) {
    return { unixMs: fromMs, anomaly: "gap" };
  }
  if (unixMs === undefined) return undefined;
  return { unixMs, anomaly: isFixed && unixMs >= span.repeatFromMs ? "repeated" : "" };
}

/** Whether the zone skips one of the trigger's times at the start of the span. */
function isSkipped(trigger: Trigger, span: ZoneSpan): boolean {
  const wallMs = span.startMs + span.offsetMs;
  return slicesBetween(wallMs - span.skippedMs, wallMs).some((slice) => overlaps(trigger, slice));
}
