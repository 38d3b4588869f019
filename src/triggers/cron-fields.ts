/**
 * Reads and checks the five cron fields with cron-parser. cron-parser accepts more than crontab(5) does (seconds, names, `L`,
 * `#`, `?`, `5/10`), so text of those forms is rejected before it reaches cron-parser.
 */
import { loadCronParser } from "./load-cron-parser.cjs";

export interface CronField {
  /** The field's name in messages. */
  readonly name: string;
  readonly min: number;
  readonly max: number;
}

/** In the order of a trigger's fields; 0 and 7 are both Sunday. */
export const cronFields = [
  { name: "minute", min: 0, max: 59 },
  { name: "hour", min: 0, max: 23 },
  { name: "day-of-month", min: 1, max: 31 },
  { name: "month", min: 1, max: 12 },
  { name: "day-of-week", min: 0, max: 7 },
] as const satisfies readonly CronField[];

/** `*`, `a` or `a-b`, with an optional step. */
const itemPattern = /^(?:\*|(?<first>\d+)(?:-(?<last>\d+))?)(?:\/(?<step>\d+))?$/;

/** Items that only some programs know, such as Quartz (`?`, `L`, `W`, `#`), Jenkins (`H`) and cronie (`~`). */
const extensions: readonly { readonly pattern: RegExp; readonly advice: string }[] = [
  { pattern: /^\?$/, advice: 'use "*"' },
  { pattern: /^L(?:-\d+)?$|^(?:\d+|L)W$/i, advice: "run on several days, and check the date in the command" },
  { pattern: /^\d+(?:#\d+|L)$/i, advice: "run on each such weekday, and check the date in the command" },
  { pattern: /^(?:H|[\d*]*~)/, advice: "use a number, and spread the runs with the job's jitter" },
];

/**
 * The values of one item in a field's list, or the reason why the item is not valid, such as `hour "24" must be 0 to 23`.
 * Items are parsed one at a time, because cron-parser rejects lists whose items overlap and days that no listed month has;
 * crontab(5) allows both.
 */
export function readItem(fieldIndex: number, item: string): readonly number[] | string {
  const field = cronFields[fieldIndex];
  if (field === undefined) throw new RangeError(`no cron field ${fieldIndex}`);
  const { name, min, max } = field;
  const groups = itemPattern.exec(item)?.groups;
  if (groups === undefined) {
    const advice = extensions.find(({ pattern }) => pattern.test(item))?.advice;
    if (advice !== undefined) return `${name} "${item}" is not supported: ${advice}`;
    return `${name} "${item}" must be made of numbers ${min} to ${max}, "*", ranges "a-b", lists "a,b" and steps "*/n" or "a-b/n"`;
  }
  const { first, last, step } = groups;
  if (first !== undefined && last === undefined && step !== undefined && Number(step) > 0) {
    return `${name} "${item}" must have a range before its step: use "${first}-${max}/${step}"`;
  }
  // Most triggers consist of these two forms, so cron-parser is not loaded for them.
  if (item === "*") return Array.from({ length: max - min + 1 }, (_, at) => min + at);
  if (/^\d\d?$/.test(item) && Number(item) >= min && Number(item) <= max) return [Number(item)];
  try {
    const texts = cronFields.map((_, at) => (at === fieldIndex ? item : "*"));
    const { minute, hour, dayOfMonth, month, dayOfWeek } = loadCronParser().parse(texts.join(" ")).fields;
    return [minute, hour, dayOfMonth, month, dayOfWeek][fieldIndex]?.values.map(Number) ?? [];
  } catch (error) {
    return `${name} ${refusal(field, item, groups, error)}`;
  }
}

/** Why an item is not valid. cron-parser's own messages name neither the field nor the range. */
function refusal(
  { min, max }: CronField,
  item: string,
  { first = "", last, step }: Partial<Record<string, string>>,
  error: unknown,
): string {
  const outside = [first, last ?? ""].find((value) => Number(value) < min || Number(value) > max);
  if (outside !== undefined && outside !== "") return `"${outside}" must be ${min} to ${max}`;
  if (last !== undefined && Number(last) < Number(first)) {
    return `range "${first}-${last}" must not run backwards: use two ranges, as in "${first}-${max},${min}-${last}"`;
  }
  if (Number(step) === 0) return `step "${item}" must be at least 1`;
  return `"${item}" cannot be read: ${error instanceof Error ? error.message : String(error)}`;
}
