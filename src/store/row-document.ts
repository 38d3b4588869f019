/** Validates JSON in rows: a damaged disk, or somebody with an editor, may have changed it. */
import { isObject } from "../lib/json.ts";

/** Shown to everybody for a thing whose row cannot be read; the log has the details. */
export const damaged = "the stored data is damaged";

/** A row that cannot be read. Its message names the problem but no value, which may be a secret. */
export class UnreadableRow extends Error {}

export type Check = (value: unknown) => boolean;

/** A check that narrows the type of the value. */
type Guard<T> = (value: unknown) => value is T;

/** The check of each field of a document. */
export type Fields<T> = Readonly<Record<keyof T & string, Check>>;

/** @throws UnreadableRow if the text is not JSON, not an object, or a field fails its check */
export function readDocument<T>(text: unknown, fields: Fields<NoInfer<T>>): T {
  const value = readJson(text);
  requireFields<T>(value, fields);
  return value;
}

/** @throws UnreadableRow */
function readJson(text: unknown): unknown {
  if (typeof text !== "string") throw new UnreadableRow("it is not text");
  try {
    return JSON.parse(text);
  } catch {
    // The original message would show part of the text.
    throw new UnreadableRow("it is not valid JSON");
  }
}

/**
 * Parses JSON in a row that is not a document.
 * @param problem the error's message if the value fails its check
 * @throws UnreadableRow
 */
export function readChecked<T>(text: unknown, check: Guard<T>, problem: string): T {
  const value = readJson(text);
  if (!check(value)) throw new UnreadableRow(problem);
  return value;
}

/** @throws UnreadableRow */
function requireFields<T>(value: unknown, fields: Fields<NoInfer<T>>): asserts value is T {
  if (!isObject(value)) throw new UnreadableRow("it is not an object");
  const wrong = wrongFields(value, fields);
  if (wrong.length > 0) throw new UnreadableRow(`it has an invalid ${wrong.join(", ")}`);
}

/** The check of an object within a document. */
export function objectOf<T>(fields: Fields<T>): Guard<T> {
  return (value): value is T => isObject(value) && wrongFields(value, fields).length === 0;
}

export function listOf<T>(check: Guard<T>): Guard<T[]>;
export function listOf(check: Check): Check;
export function listOf(check: Check): Check {
  return (value) => Array.isArray(value) && value.every(check);
}

/** The check of an object whose fields all pass the same check. */
export function recordOf(check: Check): Check {
  return (value) => isObject(value) && Object.values(value).every(check);
}

/** The check of an optional value. */
export function maybe(check: Check): Check {
  return (value) => value === undefined || check(value);
}

export function orNull(check: Check): Check {
  return (value) => value === null || check(value);
}

export function oneOf<Word extends string>(words: readonly Word[]): Guard<Word> {
  return (value): value is Word => (words as readonly unknown[]).includes(value);
}

export function isText(value: unknown): value is string {
  return typeof value === "string";
}
export const isFlag: Check = (value) => typeof value === "boolean";
export const isNumber: Check = (value) => typeof value === "number";
export const isInteger: Check = (value) => Number.isSafeInteger(value);

/** A `uint32` of the contract. */
export const isCount: Check = (value) => isBetween(value, 0, 2 ** 32 - 1);

/** Unix milliseconds of the years 1 to 9999, which RFC 3339 can express. */
export const isInstant: Check = (value) => isBetween(value, -62_135_596_800_000, 253_402_300_799_999);

/** A non-empty text. */
export const isName: Check = (value) => isText(value) && value !== "";
/** A flag as SQLite stores it. */
export const isBit: Check = (value) => value === 0 || value === 1;
/** The uid of a user; the largest `uid_t` means no user. */
export const isUid: Check = (value) => isBetween(value, 0, nobodyUid);
/** Stands for an unknown user: the largest uid, which nobody has. */
export const nobodyUid = 2 ** 32 - 2;
export const isBytes: Check = (value) => value instanceof Uint8Array;

export function isBetween(value: unknown, least: number, most: number): boolean {
  return Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most;
}

function wrongFields<T>(value: Readonly<Record<string, unknown>>, fields: Fields<T>): string[] {
  const wrong: string[] = [];
  for (const name in fields) {
    const check: Check = fields[name as keyof T & string];
    if (!check(value[name])) wrong.push(name);
  }
  return wrong;
}
