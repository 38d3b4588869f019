/** Which triggers are due in a minute (D21). */
import type { Trigger } from "./trigger.ts";
import { minuteMs, overlaps, sliceOf, slicesBetween, type WallSlice } from "./wall-slice.ts";
import type { Zone } from "./zone.ts";

/** What the wall clock of a zone shows in one minute: made once per zone and minute, then each job costs a few bit tests. */
export interface MinuteView {
  readonly now: WallSlice;
  /** The wall times that the clock has skipped right before this minute; empty but at a forward change. */
  readonly skipped: readonly WallSlice[];
  /** The clock has shown this minute before: it was put back. */
  readonly isRepeat: boolean;
}

/** The minute in which `unixMs` (milliseconds since 1970) lies. */
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
 * Whether a job with this trigger is to run in the minute. A fixed-time trigger runs once right after the forward change
 * that skips it, together with what it has to do then anyway, and only the first time in an hour that comes twice; a
 * trigger with a `*` in minute or hour follows the clock.
 */
export function isDue(trigger: Trigger, view: MinuteView): boolean {
  if (overlaps(trigger, view.now)) return !(view.isRepeat && trigger.kind === "fixed");
  return trigger.kind === "fixed" && view.skipped.some((slice) => overlaps(trigger, slice));
}
