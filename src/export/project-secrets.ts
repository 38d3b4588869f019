/** Replaces an app's secrets by marks that can be found in everything generated from its settings. */
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { settingsOf } from "../packages/manifest/manifest.ts";
import { mapTexts, recordOf } from "../runtimes/compose/compose-values.ts";
import type { RunnableApp } from "../runtimes/runnable-app.ts";
import { secretPlaceholder, withoutSecrets } from "./workload.ts";

export interface MarkedApp {
  /** With marks instead of secrets. */
  readonly app: RunnableApp;
  /** Names of settings. */
  readonly secrets: readonly string[];
}

/** Also marks secrets without a value: the package's `.env` may set their variables. */
export function markedApp(app: RunnableApp): MarkedApp {
  const { settings, secrets } = withoutSecrets(app, markOf);
  const others = settingsOf(app.manifest)
    .filter(([name, { secret, env }]) => secret === true && env !== undefined && !secrets.includes(name))
    .map(([name]) => name);
  const marks = Object.fromEntries(others.map((name) => [name, markOf(name)]));
  return { app: { ...app, settings: { ...settings, ...marks } }, secrets: [...secrets, ...others] };
}

/** A text that stands for a secret: no package contains this text by chance, and all conversions leave it unchanged. */
function markOf(name: string): string {
  return `svc-secret-${Buffer.from(name).toString("hex")}-belongs-here`;
}

/** @param text the replacement of a secret, by the name of its setting */
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

/** The compose variable for a secret: the package's variable, else the setting's name. */
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
