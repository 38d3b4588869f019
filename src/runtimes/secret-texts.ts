import { settingsOf } from "../packages/manifest/manifest.ts";
import { mergeDefaults } from "../packages/settings/settings.ts";
import { textOf } from "./compose/compose-values.ts";
import type { RunnableApp } from "./runnable-app.ts";

/** The non-empty secret settings of an app, as text, by name. */
export function secretTexts({ manifest, settings }: RunnableApp): Map<string, string> {
  const values = mergeDefaults(manifest, settings);
  const secrets = settingsOf(manifest).filter(([, { secret }]) => secret === true);
  return new Map(
    secrets.map(([name]) => [name, textOf(values[name])] as const).filter(([, text]) => text !== ""),
  );
}
