/** Converts settings that people typed to values of the settings' types. */
import { maxStructure } from "../../errors.ts";
import { hasMoreStructure, type JsonObject, type JsonValue } from "../../lib/json.ts";
import { settingsOf, type Manifest } from "../manifest/manifest.ts";

/**
 * @param texts by setting
 * @returns values, which are not validated
 */
export function valuesOfTexts(
  manifest: Pick<Manifest, "settings">,
  texts: Readonly<Record<string, string>>,
): JsonObject {
  const types = new Map(settingsOf(manifest).map(([name, { type }]) => [name, type]));
  return Object.fromEntries(
    Object.entries(texts).map(([name, text]) => [name, valueOfText(text, types.get(name))]),
  );
}

/**
 * The text itself for type `string`; for other types, the JSON in it. A text that is not JSON, that contains too much
 * JSON, or a number that would be rounded stays a text, which the setting's schema rejects.
 */
export function valueOfText(text: string, type: JsonValue | undefined): JsonValue {
  if (type === "string" || hasMoreStructure(text, maxStructure)) return text;
  try {
    const value = JSON.parse(text) as JsonValue;
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? text : value;
  } catch {
    return text;
  }
}
