/** Which values a cron field allows, as bits. */
import { BoundedMemo } from "../../lib/bounded-memo.ts";
import { cronFields, readItem, type CronField } from "./cron-fields.ts";

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
    known: new BoundedMemo<string, ValueSet | string>(maxRemembered),
  }));

  /** The values of a field, or what is wrong with its text. @param fieldIndex which of `cronFields` */
  read(fieldIndex: number, text: string): ValueSet | string {
    const entry = this.#fields[fieldIndex];
    if (entry === undefined) throw new RangeError(`no cron field ${fieldIndex}`);
    const { field, known } = entry;
    return known.get(text, () => {
      const values: number[] = [];
      for (const item of text.split(",")) {
        if (item === "") return `${field.name} "${text}" has an empty list item`;
        const read = readItem(fieldIndex, item);
        if (typeof read === "string") return read;
        values.push(...read);
      }
      return setOf(field, values);
    });
  }
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
