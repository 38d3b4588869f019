import { settingsOf } from "../packages/manifest.ts";
import { mergeDefaults } from "../packages/settings.ts";
import { textOf } from "./compose/compose-values.ts";
import type { RunnableApp } from "./runtime.ts";

/** What is secret of an app's settings and says something, as texts, by name. */
export function secretTexts({ manifest, settings }: RunnableApp): Map<string, string> {
  const values = mergeDefaults(manifest, settings);
  const secrets = settingsOf(manifest).filter(([, { secret }]) => secret === true);
  return new Map(
    secrets.map(([name]) => [name, textOf(values[name])] as const).filter(([, text]) => text !== ""),
  );
}
