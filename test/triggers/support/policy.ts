/** The policy of a trigger minute by minute: slow, plain, and independent of the engine. */
import type { WallClock } from "./wall-clock.ts";

const ranges = [
  [0, 59],
  [0, 23],
  [1, 31],
  [1, 12],
  [0, 7],
] as const;

export class Policy {
  /** No `*` in minute and hour. */
  readonly isFixed: boolean;
  readonly #minutes: boolean[];
  readonly #hours: boolean[];
  readonly #isDay: (day: number) => boolean;

  constructor(text: string) {
    const [minute = "", hour = "", ...days] = cronOf(text).trim().split(/\s+/);
    this.isFixed = !`${minute}${hour}`.includes("*");
    this.#minutes = tableOf(minute, 0);
    this.#hours = tableOf(hour, 1);
    this.#isDay = dayRule(days);
  }

  /** Whether the local time matches the trigger; in minutes since 1970. */
  wants(wall: number): boolean {
    return (
      this.#minutes[wall % 60] === true &&
      this.#hours[Math.floor(wall / 60) % 24] === true &&
      this.#isDay(Math.floor(wall / 1440))
    );
  }

  /** Whether it is due in the minute, and the anomaly. */
  dueAt(clock: WallClock, index: number): "no" | "" | "gap" | "repeated" {
    const isDue = this.wants(clock.wallAt(index));
    const oddity = this.isFixed ? clock.oddityAt(index) : undefined;
    if (oddity === undefined) return isDue ? "" : "no";
    if (isDue && !oddity.isRepeat) return oddity.comesAgain ? "repeated" : "";
    return oddity.skipped.some((wall) => this.wants(wall)) ? "gap" : "no";
  }

  /** The index of the first minute from `from` on, below `to`, in which it is due. */
  nextIndex(clock: WallClock, from: number, to: number): number | undefined {
    for (let at = from; at < to; at += 1) if (this.dueAt(clock, at) !== "no") return at;
    return undefined;
  }
}

function cronOf(text: string): string {
  if (text === "hourly") return "0 * * * *";
  const [, hour, minute] = /^(?:daily@)?(\d+):(\d+)$/.exec(text) ?? [];
  return hour === undefined ? text : `${String(minute)} ${hour} * * *`;
}

function tableOf(text: string, field: number): boolean[] {
  const [min, max] = ranges[field]!;
  const table = Array<boolean>(max + 1).fill(false);
  for (const item of text.split(",")) {
    const [span = "", step = "1"] = item.split("/");
    const [first = "", last = first] = span.split("-");
    const [from, to] = span === "*" ? [min, max] : [Number(first), Number(last)];
    for (let value = from; value <= to; value += Number(step)) table[value] = true;
  }
  return table;
}

function dayRule([dayOfMonth = "", month = "", dayOfWeek = ""]: string[]): (day: number) => boolean {
  const [days, months, weekdays] = [tableOf(dayOfMonth, 2), tableOf(month, 3), tableOf(dayOfWeek, 4)];
  const areBothRestricted = !dayOfMonth.startsWith("*") && !dayOfWeek.startsWith("*");
  const known = new Map<number, boolean>();
  function decide(day: number): boolean {
    const date = new Date(day * 86_400_000);
    const weekday = date.getUTCDay();
    const byDate = days[date.getUTCDate()] === true;
    const byWeekday = weekdays[weekday] === true || (weekday === 0 && weekdays[7] === true);
    const isDay = areBothRestricted ? byDate || byWeekday : byDate && byWeekday;
    return months[date.getUTCMonth() + 1] === true && isDay;
  }
  return (day) => {
    const isDay = known.get(day) ?? decide(day);
    known.set(day, isDay);
    return isDay;
  };
}
