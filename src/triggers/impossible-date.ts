/** Days of each month in a leap year. */
const longestMonths = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] as const;
const monthNames =
  "January February March April May June July August September October November December".split(" ");

/** The days of a trigger, as bits; see `Trigger`. */
interface TriggerDays {
  readonly months: number;
  readonly daysOfMonth: number;
  readonly isEitherDay: boolean;
  readonly event?: unknown;
}

/** Why a trigger never fires in any year, such as `there is no 30 February`; undefined if it fires. */
export function impossibleDate({ event, isEitherDay, months, daysOfMonth }: TriggerDays): string | undefined {
  // A trigger with either day always fires on its days of the week.
  if (event !== undefined || isEitherDay) return undefined;
  const chosen = longestMonths.flatMap((length, month) =>
    (months & (1 << month)) === 0 ? [] : [{ length, month }],
  );
  if (chosen.some(({ length }) => (daysOfMonth & (2 ** length - 1)) !== 0)) return undefined;
  const day = 32 - Math.clz32(daysOfMonth & -daysOfMonth);
  return `there is no ${day} ${monthNames[chosen[0]?.month ?? 0] ?? ""}`;
}
