/** Wall-clock time as bits, to be laid over the bits of a trigger. Wall times are milliseconds since 1970 as if the clock showed UTC. */
import type { Trigger } from "./trigger.ts";
import { wordBits } from "./value-sets.ts";

export const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
export const dayMs = 24 * hourMs;

/** Some minutes of one hour of one day, each as the bit that `Trigger` has for it. */
export interface WallSlice {
  readonly minutesLow: number;
  readonly minutesHigh: number;
  readonly hour: number;
  readonly dayOfMonth: number;
  readonly month: number;
  readonly dayOfWeek: number;
}

/** The minutes from `fromMs` up to and without `toMs`, which lies in the same hour or is its end; both whole minutes. */
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

/** The minutes from `fromMs` up to and without `toMs`, hour by hour. */
export function slicesBetween(fromMs: number, toMs: number): WallSlice[] {
  const slices: WallSlice[] = [];
  for (let atMs = fromMs; atMs < toMs;) {
    const endMs = Math.min(toMs, (Math.floor(atMs / hourMs) + 1) * hourMs);
    slices.push(sliceOf(atMs, endMs));
    atMs = endMs;
  }
  return slices;
}

/** Whether one of the minutes is one of the trigger's. */
export function overlaps(trigger: Trigger, slice: WallSlice): boolean {
  if (((trigger.minutesLow & slice.minutesLow) | (trigger.minutesHigh & slice.minutesHigh)) === 0)
    return false;
  if ((trigger.hours & slice.hour) === 0 || (trigger.months & slice.month) === 0) return false;
  const isDayOfMonth = (trigger.daysOfMonth & slice.dayOfMonth) !== 0;
  const isDayOfWeek = (trigger.daysOfWeek & slice.dayOfWeek) !== 0;
  return trigger.isEitherDay ? isDayOfMonth || isDayOfWeek : isDayOfMonth && isDayOfWeek;
}
