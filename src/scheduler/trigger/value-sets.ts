/** Which values a cron field allows, as bits; ranges and steps are expanded by cron-parser. */
import { invalidField } from "../../errors.ts";
import { BoundedMemo } from "../../lib/bounded-memo.ts";
import { cronFields, fieldProblem } from "./cron-fields.ts";
import type { CronField } from "./cron-fields.ts";
import { loadCronParser } from "./load-cron-parser.cjs";

/** Bits in a word: one less than the machine has, so that every word is a small positive integer. */
export const wordBits = 31;

/** The allowed values of a field, each counted from the field's smallest: the first 31 are bits of `low`, the rest of `high`. */
export interface ValueSet {
  readonly low: number;
  readonly high: number;
}

/** Texts that are remembered per field; nobody writes so many but to fill the memory. */
const maxRemembered = 4096;

/** Turns cron fields into bits and remembers each text: among 100,000 jobs they are few, and cron-parser takes 20 µs. */
export class ValueSets {
  readonly #fields = cronFields.map((field) => ({
    field,
    known: new BoundedMemo<string, ValueSet>(maxRemembered),
  }));

  /**
   * @param fieldIndex which of `cronFields`
   * @throws SvcError `invalid_argument` `invalid_request` about `trigger` when the text breaks the field's syntax
   */
  read(fieldIndex: number, text: string): ValueSet {
    const entry = this.#fields[fieldIndex];
    if (entry === undefined) throw new RangeError(`no cron field ${fieldIndex}`);
    const { field, known } = entry;
    return known.get(text, () => {
      const problem = fieldProblem(field, text);
      if (problem !== undefined) throw invalidField("trigger", problem);
      return setOf(
        field,
        text.split(",").flatMap((item) => valuesOf(field, fieldIndex, item)),
      );
    });
  }
}

function valuesOf({ min, max }: CronField, fieldIndex: number, item: string): number[] {
  if (item === "*") return Array.from({ length: max - min + 1 }, (_, at) => min + at);
  const value = Number(item);
  return Number.isNaN(value) ? expand(fieldIndex, item) : [value];
}

/**
 * Each item is asked about by itself: cron-parser refuses lists whose items overlap and days that none of the
 * months has, both of which crontab(5) allows.
 */
function expand(fieldIndex: number, item: string): number[] {
  const texts = cronFields.map((_, at) => (at === fieldIndex ? item : "*"));
  const { minute, hour, dayOfMonth, month, dayOfWeek } = loadCronParser().parse(texts.join(" ")).fields;
  return [minute, hour, dayOfMonth, month, dayOfWeek][fieldIndex]?.values.map(Number) ?? [];
}

function setOf(field: CronField, values: readonly number[]): ValueSet {
  let [low, high] = [0, 0];
  for (const value of values) {
    const bit = field.name === "day-of-week" ? value % 7 : value - field.min;
    if (bit < wordBits) low |= 1 << bit;
    else high |= 1 << (bit - wordBits);
  }
  return { low, high };
}
