import type { JsonValue } from "./json.ts";

/**
 * The value of a setting that a person typed: the text itself for type `string`; for other types, the JSON in it.
 * A text that is not JSON, or a number that would be rounded, stays a text, which the setting's schema rejects.
 */
export function valueOfText(text: string, type: JsonValue | undefined): JsonValue {
  if (type === "string") return text;
  try {
    const value = JSON.parse(text) as JsonValue;
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? text : value;
  } catch {
    return text;
  }
}
