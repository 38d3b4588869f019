/** An app whose secrets can be found again in whatever is made of its settings, and are told nowhere. */
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { settingsOf } from "../packages/manifest.ts";
import { mapTexts, recordOf } from "../runtimes/compose/compose-values.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";
import { secretPlaceholder, withoutSecrets } from "./workload.ts";

export interface MarkedApp {
  /** With marks where its secrets belong. */
  readonly app: RunnableApp;
  /** Names of settings. */
  readonly secrets: readonly string[];
}

export function markedApp(app: RunnableApp): MarkedApp {
  const { settings, secrets } = withoutSecrets(app, markOf);
  return { app: { ...app, settings }, secrets };
}

/** No text of a package has it by chance, and nothing that reads it on the way changes it. */
function markOf(name: string): string {
  return `svc-secret-${Buffer.from(name).toString("hex")}-belongs-here`;
}

/** @param text what stands for a secret, by the name of its setting */
export function replaceMarks(
  value: JsonObject,
  secrets: readonly string[],
  text: (name: string) => string = () => secretPlaceholder,
): JsonObject {
  const replaced = (part: JsonValue): JsonValue =>
    mapTexts(part, (all) =>
      secrets.reduce((rest, name) => rest.replaceAll(markOf(name), () => text(name)), all),
    );
  return recordOf(replaced(value));
}

/** The variable of a compose file that a secret is: as the package calls it, else as its setting is called. */
export function variableOf({ manifest }: RunnableApp, name: string): string {
  const env = new Map(settingsOf(manifest)).get(name)?.env;
  return (
    env ??
    name
      .toUpperCase()
      .replaceAll(/[^A-Z0-9_]/g, "_")
      .replace(/^(?=\d)/, "_")
  );
}
