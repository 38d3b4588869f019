/**
 * What a row keeps as JSON, and whether it is still what svc writes there: a disk, or somebody with an editor, may have made
 * something else of it.
 */

/** What everybody is told of a thing whose row cannot be read; what is wrong with the row is for the log. */
export const damaged = "what svc keeps of it is damaged";

/** A row that cannot be read. Its message names what is wrong and no value, as that may be a secret. */
export class UnreadableRow extends Error {}

export type Check = (value: unknown) => boolean;

/** A check that tells what the value is. */
type Guard<T> = (value: unknown) => value is T;

/** What each field of a document must be. */
export type Fields<T> = Readonly<Record<keyof T & string, Check>>;

/** @throws UnreadableRow for what is no JSON, no object, or has a field that fails its check */
export function readDocument<T>(text: unknown, fields: Fields<NoInfer<T>>): T {
  const value = readJson(text);
  requireFields<T>(value, fields);
  return value;
}

/** @throws UnreadableRow */
function readJson(text: unknown): unknown {
  if (typeof text !== "string") throw new UnreadableRow("it is no text");
  try {
    return JSON.parse(text);
  } catch {
    // Its message would show some of the text.
    throw new UnreadableRow("it is no JSON");
  }
}

/**
 * What a row keeps as JSON that is no document.
 * @param problem what is wrong with it where it fails its check
 * @throws UnreadableRow
 */
export function readChecked<T>(text: unknown, check: Guard<T>, problem: string): T {
  const value = readJson(text);
  if (!check(value)) throw new UnreadableRow(problem);
  return value;
}

/** @throws UnreadableRow */
export function requireFields<T>(value: unknown, fields: Fields<NoInfer<T>>): asserts value is T {
  if (!isObject(value)) throw new UnreadableRow("it is no object");
  const wrong = wrongFields(value, fields);
  if (wrong.length > 0) throw new UnreadableRow(`it has no right ${wrong.join(", ")}`);
}

/** The check of an object that is part of a document. */
export function objectOf<T>(fields: Fields<T>): Guard<T> {
  return (value): value is T => isObject(value) && wrongFields(value, fields).length === 0;
}

export function listOf<T>(check: Guard<T>): Guard<T[]>;
export function listOf(check: Check): Check;
export function listOf(check: Check): Check {
  return (value) => Array.isArray(value) && value.every(check);
}

/** The check of an object of which each field is the same. */
export function recordOf(check: Check): Check {
  return (value) => isObject(value) && Object.values(value).every(check);
}

/** The check of what may be absent. */
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
export const isWhole: Check = (value) => Number.isSafeInteger(value);

/** As an `uint32` of the contract. */
export const isCount: Check = (value) => isBetween(value, 0, 2 ** 32 - 1);

/** Unix milliseconds of the years 1 to 9999, which RFC 3339 can write. */
export const isInstant: Check = (value) => isBetween(value, -62_135_596_800_000, 253_402_300_799_999);

/** A text that names something. */
export const isName: Check = (value) => isText(value) && value !== "";
/** As SQLite keeps a flag. */
export const isBit: Check = (value) => value === 0 || value === 1;
/** Of a user; the greatest `uid_t` stands for none. */
export const isUid: Check = (value) => isBetween(value, 0, nobodyUid);
/** In the place of a user of whom is not known who it is: the greatest number, which nobody has. */
export const nobodyUid = 2 ** 32 - 2;
export const isBytes: Check = (value) => value instanceof Uint8Array;

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

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
