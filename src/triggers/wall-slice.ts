/** Wall-clock time as bits that can be compared with the bits of a trigger. Wall-clock times are milliseconds since 1970 as if in UTC. */
import type { Trigger } from "./trigger.ts";
import { wordBits } from "./value-sets.ts";

export const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
export const dayMs = 24 * hourMs;

/** Minutes of one hour of one day, with the bits that `Trigger` uses. */
export interface WallSlice {
  readonly minutesLow: number;
  readonly minutesHigh: number;
  readonly hour: number;
  readonly dayOfMonth: number;
  readonly month: number;
  readonly dayOfWeek: number;
}

/** The minutes from `fromMs` to before `toMs`, which is in the same hour or at its end; both are whole minutes. */
export function sliceOf(fromMs: number, toMs: number): WallSlice {
  const date = new Date(fromMs);
  const first = date.getUTCMinutes();
  const count = (toMs - fromMs) / minuteMs;
  let [minutesLow, minutesHigh] = [0, 0];
  for (let minute = first; minute < first + count; minute += 1) {
    if (minute < wordBits) minutesLow |= 1 << minute;
    else minutesHigh |= 1 << (minute - wordBits);
  }
  return {
    minutesLow,
    minutesHigh,
    hour: 1 << date.getUTCHours(),
    dayOfMonth: 1 << (date.getUTCDate() - 1),
    month: 1 << date.getUTCMonth(),
    dayOfWeek: 1 << date.getUTCDay(),
  };
}

/** The minutes from `fromMs` to before `toMs`, one slice per hour. */
export function slicesBetween(fromMs: number, toMs: number): WallSlice[] {
  const slices: WallSlice[] = [];
  for (let atMs = fromMs; atMs < toMs;) {
    const endMs = Math.min(toMs, (Math.floor(atMs / hourMs) + 1) * hourMs);
    slices.push(sliceOf(atMs, endMs));
    atMs = endMs;
  }
  return slices;
}

/** Whether the trigger fires in one of the minutes. */
export function overlaps(trigger: Trigger, slice: WallSlice): boolean {
  if (((trigger.minutesLow & slice.minutesLow) | (trigger.minutesHigh & slice.minutesHigh)) === 0)
    return false;
  if ((trigger.hours & slice.hour) === 0 || (trigger.months & slice.month) === 0) return false;
  const isDayOfMonth = (trigger.daysOfMonth & slice.dayOfMonth) !== 0;
  const isDayOfWeek = (trigger.daysOfWeek & slice.dayOfWeek) !== 0;
  return trigger.isEitherDay ? isDayOfMonth || isDayOfWeek : isDayOfMonth && isDayOfWeek;
}
