/** Which values a cron field allows, as bits; ranges and steps are expanded by cron-parser. */
import { cronFields } from "./cron-fields.ts";
import type { CronField } from "./cron-fields.ts";
import { loadCronParser } from "./load-cron-parser.cjs";

/** Bits in a word: one less than the machine has, so that every word is a small positive integer. */
export const wordBits = 31;

/** The allowed values of a field, each counted from the field's smallest: the first 31 are bits of `low`, the rest of `high`. */
export interface ValueSet {
  readonly low: number;
  readonly high: number;
}

/** Distinct ranges and steps that are remembered; nobody writes so many but to fill the memory. */
const maxRemembered = 4096;

/** Turns the texts of cron fields into bits and remembers ranges and steps: among 100,000 jobs they are few. */
export class ValueSets {
  /** By field and text; cron-parser takes 20 µs for each. */
  readonly #expanded = new Map<string, ValueSet>();

  /**
   * @param fieldIndex which of `cronFields`
   * @param text must have passed `fieldProblem`
   */
  read(fieldIndex: number, text: string): ValueSet {
    const field = fieldAt(fieldIndex);
    let [low, high] = [0, 0];
    for (const item of text.split(",")) {
      const set = this.#readItem(field, fieldIndex, item);
      low |= set.low;
      high |= set.high;
    }
    return { low, high };
  }

  #readItem(field: CronField, fieldIndex: number, item: string): ValueSet {
    const value = Number(item);
    if (!Number.isNaN(value)) return setOf(field, [value]);
    const key = `${fieldIndex} ${item}`;
    const known = this.#expanded.get(key);
    if (known !== undefined) return known;
    const set = setOf(field, item === "*" ? everyValue(field) : expand(fieldIndex, item));
    if (this.#expanded.size >= maxRemembered) this.#expanded.clear();
    this.#expanded.set(key, set);
    return set;
  }
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

function everyValue({ min, max }: CronField): number[] {
  return Array.from({ length: max - min + 1 }, (_, at) => min + at);
}

function fieldAt(index: number): CronField {
  const field = cronFields[index];
  if (field === undefined) throw new RangeError(`no cron field ${index}`);
  return field;
}
