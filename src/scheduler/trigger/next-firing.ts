/** When a trigger fires next, computed by skipping months, days and hours that cannot match (S 1.4.8). */
import type { Trigger } from "./trigger.ts";
import { nextWallMinute } from "./wall-search.ts";
import { dayMs, minuteMs, overlaps, slicesBetween } from "./wall-slice.ts";
import type { Zone, ZoneSpan } from "./zone.ts";

export interface Firing {
  /** The start of the minute, in milliseconds since 1970. */
  readonly unixMs: number;
  /**
   * What daylight saving does to a fixed-time trigger: `gap`, it fires right after the forward change that skips it;
   * `repeated`, its time comes twice and it fires the first time. Else empty.
   */
  readonly anomaly: "" | "gap" | "repeated";
}

/** How far is looked, so that 29 February is found from the February before. */
const horizonMs = 366 * dayMs;

/**
 * The first firing strictly after `afterMs` (milliseconds since 1970) and within 366 days; else none.
 * It is the next minute for which `isDue` holds.
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

/** The first firing from `fromMs` up to and without `toMs`, both within the span. */
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

/** Whether the clock skips a time of the trigger where the span starts. */
function isSkipped(trigger: Trigger, span: ZoneSpan): boolean {
  const wallMs = span.startMs + span.offsetMs;
  return slicesBetween(wallMs - span.skippedMs, wallMs).some((slice) => overlaps(trigger, slice));
}
