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
