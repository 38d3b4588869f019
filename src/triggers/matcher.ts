/** Decides which triggers are due in a minute. */
import type { Trigger } from "./trigger.ts";
import { minuteMs, overlaps, sliceOf, slicesBetween, type WallSlice } from "./wall-slice.ts";
import type { Zone } from "./zone.ts";

/** The wall-clock time of a zone in one minute. Created once per zone and minute; each job then costs a few bit tests. */
export interface MinuteView {
  readonly now: WallSlice;
  /** The wall-clock times that the zone skipped right before this minute; empty except at a forward change. */
  readonly skipped: readonly WallSlice[];
  /** True if the zone set its clock back and shows this minute for the second time. */
  readonly isRepeat: boolean;
}

/** The minute that contains `unixMs` (milliseconds since 1970). */
export function viewMinute(zone: Zone, unixMs: number): MinuteView {
  const startMs = Math.floor(unixMs / minuteMs) * minuteMs;
  const span = zone.spanAt(startMs);
  const wallMs = startMs + span.offsetMs;
  return {
    now: sliceOf(wallMs, wallMs + minuteMs),
    skipped: startMs === span.startMs ? slicesBetween(wallMs - span.skippedMs, wallMs) : [],
    isRepeat: startMs < span.repeatUntilMs,
  };
}

/**
 * Whether a job with this trigger runs in the minute. A fixed-time trigger runs once right after a forward change that skips
 * its time, and only the first time in an hour that occurs twice. A trigger with a `*` in minute or hour follows the clock.
 */
export function isDue(trigger: Trigger, view: MinuteView): boolean {
  if (overlaps(trigger, view.now)) return !(view.isRepeat && trigger.kind === "fixed");
  return trigger.kind === "fixed" && view.skipped.some((slice) => overlaps(trigger, slice));
}
