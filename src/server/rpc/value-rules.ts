/** Rules for single values: numbers, strings, bytes. */
import type { FieldRules } from "../../../gen/svc/v1/rules_pb.ts";

/**
 * The problem of a value, as the end of a sentence that starts with the field's name; undefined if there is
 * none.
 */
export type ValueCheck = (value: unknown) => string | undefined;

/**
 * Undefined if the rules do not concern single values.
 * @param isSecret the value must not be repeated
 */
export function compileValueCheck(rules: FieldRules | undefined, isSecret: boolean): ValueCheck | undefined {
  if (rules === undefined) return undefined;
  const shown = (value: unknown): string => (isSecret ? "" : `, not ${quoteValue(value)}`);
  const checks: ValueCheck[] = [];
  const { gte, lte, minLen, maxLen, pattern, means } = rules;

  if (rules.in.length > 0) {
    const words = new Set(rules.in);
    const list = rules.in.join(", ");
    checks.push((v) => (words.has(v as string) ? undefined : `must be one of ${list}${shown(v)}`));
  }
  if (gte !== undefined) {
    checks.push((v) => (Number(v) >= gte ? undefined : `must be at least ${gte}${shown(v)}`));
  }
  if (lte !== undefined) {
    checks.push((v) => (Number(v) <= lte ? undefined : `must be at most ${lte}${shown(v)}`));
  }
  if (minLen !== undefined) {
    // A character has at most two code units, so most values need no counting.
    checks.push((v) => (sizeOf(v) >= 2 * minLen || lengthOf(v) >= minLen ? undefined : tooShort(v, minLen)));
  }
  if (maxLen !== undefined) {
    // Code units are never fewer than characters, so most values need no counting.
    checks.push((v) => (sizeOf(v) <= maxLen || lengthOf(v) <= maxLen ? undefined : tooLong(v, maxLen)));
  }
  if (pattern !== undefined) {
    const whole = new RegExp(`^(?:${pattern})$`, "u");
    const expected = means === undefined ? `must match ${pattern}` : `must be ${means}`;
    checks.push((v) => (whole.test(v as string) ? undefined : `${expected}${shown(v)}`));
  }
  if (checks.length <= 1) return checks[0];
  return (value) => {
    for (const check of checks) {
      const description = check(value);
      if (description !== undefined) return description;
    }
    return undefined;
  };
}

function sizeOf(value: unknown): number {
  return (value as string | Uint8Array).length;
}

/** Characters of a string, bytes of bytes. */
function lengthOf(value: unknown): number {
  if (typeof value !== "string") return sizeOf(value);
  let characters = 0;
  for (const _character of value) characters++;
  return characters;
}

function unitOf(value: unknown): string {
  return typeof value === "string" ? "characters" : "bytes";
}

function tooShort(value: unknown, bound: number): string {
  return `must have at least ${bound} ${unitOf(value)}, not ${lengthOf(value)}`;
}

function tooLong(value: unknown, bound: number): string {
  return `must have at most ${bound} ${unitOf(value)}, not ${lengthOf(value)}`;
}

/** Maximum characters of a caller's value in an error message. */
const maxShown = 64;

/**
 * Characters that could control a terminal or reorder a line: C1 controls, DEL, line separators, direction
 * marks.
 */
const steering = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** Quotes a value for an error message, cut to 64 characters, with control characters escaped. */
export function quoteValue(value: unknown): string {
  if (typeof value !== "string") return value instanceof Uint8Array ? `${value.length} bytes` : String(value);
  const isLong = value.length > maxShown;
  const cut = isLong ? value.slice(0, maxShown).toWellFormed() : value;
  const quoted = JSON.stringify(cut).replace(
    steering,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return isLong ? `${quoted.slice(0, -1)}…"` : quoted;
}
