/** What tells a container that runs with one version and its settings from one that runs with others. */
import { createHash } from "node:crypto";
import type { JsonObject } from "../lib/json.ts";
import { mergeDefaults } from "../packages/settings.ts";
import type { RunnableApp } from "./runtime.ts";

/** The label that carries it. */
export const settingsLabel = "svc.settings";

const digestLength = 16;

/** @param values default: those that its next start takes */
export function settingsDigest(
  { version, manifest, settings }: Pick<RunnableApp, "version" | "manifest" | "settings">,
  values: JsonObject = settings,
): string {
  const merged = Object.entries(mergeDefaults(manifest, values)).sort(([a], [b]) => (a < b ? -1 : 1));
  return createHash("sha256")
    .update(JSON.stringify([version, merged]))
    .digest("hex")
    .slice(0, digestLength);
}

/** Whether a container with these labels runs as the app was started last; one from before this label does. */
export function runsAsStarted(app: RunnableApp, labels: Readonly<Record<string, string>>): boolean {
  const digest = labels[settingsLabel];
  if (digest === undefined || app.startedSettings === null) return true;
  return digest === settingsDigest(app, app.startedSettings);
}
