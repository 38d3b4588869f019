/**
 * The five cron fields and the strict syntax of each (S 1.4.5): `*`, values, ranges, lists and steps, in numbers. cron-parser
 * accepts more (seconds, names, `L`, `#`, `?`, `5/10`); what it would read differently than crontab(5) never gets there.
 */

export interface CronField {
  /** As messages call it. */
  readonly name: string;
  readonly min: number;
  readonly max: number;
}

/** In the order in which a trigger gives them; 0 and 7 are both Sunday. */
export const cronFields = [
  { name: "minute", min: 0, max: 59 },
  { name: "hour", min: 0, max: 23 },
  { name: "day-of-month", min: 1, max: 31 },
  { name: "month", min: 1, max: 12 },
  { name: "day-of-week", min: 0, max: 7 },
] as const satisfies readonly CronField[];

/** `*`, `a` or `a-b`, and a step behind it. */
const itemPattern = /^(?:\*|(?<first>\d+)(?:-(?<last>\d+))?)(?:\/(?<step>\d+))?$/;

/** What is wrong with the text of a field, such as `hour "24" must be 0 to 23`; `undefined` when nothing is. */
export function fieldProblem(field: CronField, text: string): string | undefined {
  for (const item of text.split(",")) {
    const problem = item === "" ? `"${text}" has an empty list item` : itemProblem(field, item);
    if (problem !== undefined) return `${field.name} ${problem}`;
  }
  return undefined;
}

function itemProblem({ min, max }: CronField, item: string): string | undefined {
  const groups = itemPattern.exec(item)?.groups;
  if (groups === undefined) {
    return `"${item}" must be made of numbers ${min} to ${max}, "*", ranges "a-b", lists "a,b" and steps "*/n" or "a-b/n"`;
  }
  const { first, last, step } = groups;
  for (const value of [first, last]) {
    if (value !== undefined && (Number(value) < min || Number(value) > max)) {
      return `"${value}" must be ${min} to ${max}`;
    }
  }
  if (last !== undefined && Number(last) < Number(first)) {
    return `range "${first ?? ""}-${last}" must not run backwards: use two ranges, as in "${first ?? ""}-${max},${min}-${last}"`;
  }
  if (step === undefined) return undefined;
  if (Number(step) === 0) return `step "${item}" must be at least 1`;
  if (first !== undefined && last === undefined) {
    return `"${item}" must have a range before its step: use "${first}-${max}/${step}"`;
  }
  return undefined;
}
