/** Converts settings that people typed to values of the settings' types. */
import { maxStructure } from "../../errors.ts";
import { hasMoreStructure, type JsonObject } from "../../lib/json.ts";
import { valueOfText } from "../../lib/typed-text.ts";
import { settingsOf, type Manifest } from "../manifest/manifest.ts";

/**
 * @param texts by setting
 * @returns values, which are not validated; a text with too much JSON stays a text
 */
export function valuesOfTexts(
  manifest: Pick<Manifest, "settings">,
  texts: Readonly<Record<string, string>>,
): JsonObject {
  const types = new Map(settingsOf(manifest).map(([name, { type }]) => [name, type]));
  return Object.fromEntries(
    Object.entries(texts).map(([name, text]) => [
      name,
      hasMoreStructure(text, maxStructure) ? text : valueOfText(text, types.get(name)),
    ]),
  );
}
