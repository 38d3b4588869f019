/** The values that a cron field allows, as bits. */
import { BoundedMemo } from "../lib/bounded-memo.ts";
import { cronFields, readItem, type CronField } from "./cron-fields.ts";

/** Bits per word: 31, so that every word is a small positive integer. */
export const wordBits = 31;

/** The allowed values of a field, each counted from the field's smallest: the first 31 are bits of `low`, the rest of `high`. */
export interface ValueSet {
  readonly low: number;
  readonly high: number;
}

/** How many texts are cached per field; the bound keeps hostile input from filling the memory. */
const maxRemembered = 4096;

/** Turns cron fields into bits and caches each text: 100,000 jobs share few texts, and cron-parser takes 20 µs per field. */
export class ValueSets {
  readonly #fields = cronFields.map((field) => ({
    field,
    known: new BoundedMemo<string, ValueSet | string>(maxRemembered),
  }));

  /** The values of a field, or the reason why its text is not valid. @param fieldIndex index in `cronFields` */
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
