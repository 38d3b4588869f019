/** Finds the next wall-clock time of a trigger in a calendar without time zones. Wall-clock times are milliseconds since 1970 as if in UTC. */
import type { Trigger } from "./trigger.ts";
import { wordBits } from "./value-sets.ts";
import { dayMs, minuteMs } from "./wall-slice.ts";

/** The first matching minute from `fromMs` (a whole minute) to before `beforeMs`. */
export function nextWallMinute(trigger: Trigger, fromMs: number, beforeMs: number): number | undefined {
  if (fromMs >= beforeMs) return undefined;
  const from = new Date(fromMs);
  let year = from.getUTCFullYear();
  let month = from.getUTCMonth();
  let monthMs = Date.UTC(year, month);
  const dayIndex = from.getUTCDate() - 1;
  let firstWeekday = (from.getUTCDay() + 35 - dayIndex) % 7;

  let days = daysOfMonth(trigger, year, month, firstWeekday);
  if ((days & (1 << dayIndex)) !== 0) {
    const startMs = monthMs + dayIndex * dayMs;
    const minute = nextMinuteOfDay(trigger, (fromMs - startMs) / minuteMs);
    if (minute !== undefined) return ifBefore(startMs + minute * minuteMs, beforeMs);
  }
  days &= -2 << dayIndex;
  while (days === 0) {
    const length = monthLength(year, month);
    monthMs += length * dayMs;
    if (monthMs >= beforeMs) return undefined;
    firstWeekday = (firstWeekday + length) % 7;
    month = (month + 1) % 12;
    if (month === 0) year += 1;
    days = daysOfMonth(trigger, year, month, firstWeekday);
  }
  const minute = nextMinuteOfDay(trigger, 0) ?? 0;
  return ifBefore(monthMs + lowestBit(days) * dayMs + minute * minuteMs, beforeMs);
}

/** The days of a month (0 is January) on which the trigger fires, as bits from day 1; 0 if it does not fire in the month. */
function daysOfMonth(trigger: Trigger, year: number, month: number, firstWeekday: number): number {
  if ((trigger.months & (1 << month)) === 0) return 0;
  // Rotated so that bit 0 is the first day of the month, then repeated for five weeks.
  const week = ((trigger.daysOfWeek >> firstWeekday) | (trigger.daysOfWeek << (7 - firstWeekday))) & 0x7f;
  const byWeekday = week | (week << 7) | (week << 14) | (week << 21) | (week << 28);
  const days = trigger.isEitherDay ? trigger.daysOfMonth | byWeekday : trigger.daysOfMonth & byWeekday;
  return days & (2 ** monthLength(year, month) - 1);
}

/** Days of each month in a common year. */
const monthLengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] as const;

function monthLength(year: number, month: number): number {
  const isLeapYear = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  return month === 1 && isLeapYear ? 29 : (monthLengths[month] ?? 31);
}

/** The first minute of the day, from minute `from` on, at which the trigger fires. */
function nextMinuteOfDay(trigger: Trigger, from: number): number | undefined {
  const hour = Math.floor(from / 60);
  if ((trigger.hours & (1 << hour)) !== 0) {
    const minute = nextMinuteOfHour(trigger, from % 60);
    if (minute !== undefined) return hour * 60 + minute;
  }
  const later = trigger.hours & (-2 << hour);
  return later === 0 ? undefined : lowestBit(later) * 60 + (nextMinuteOfHour(trigger, 0) ?? 0);
}

function nextMinuteOfHour(trigger: Trigger, from: number): number | undefined {
  const low = from < wordBits ? trigger.minutesLow & (-1 << from) : 0;
  if (low !== 0) return lowestBit(low);
  const high = trigger.minutesHigh & (-1 << Math.max(0, from - wordBits));
  return high === 0 ? undefined : wordBits + lowestBit(high);
}

function lowestBit(bits: number): number {
  return 31 - Math.clz32(bits & -bits);
}

function ifBefore(wallMs: number, beforeMs: number): number | undefined {
  return wallMs < beforeMs ? wallMs : undefined;
}
