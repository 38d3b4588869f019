/** Identifies the version and settings that a container runs with. */
import { createHash } from "node:crypto";
import type { JsonObject } from "../lib/json.ts";
import { mergeDefaults } from "../packages/settings/settings.ts";
import type { RunnableApp } from "./runnable-app.ts";

/** Label with the digest. */
export const settingsLabel = "svc.settings";

const digestLength = 16;

/** @param values default: the values for the next start */
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

/** Whether a container with these labels runs with the settings of the app's last start; true without the label. */
export function runsAsStarted(app: RunnableApp, labels: Readonly<Record<string, string>>): boolean {
  const digest = labels[settingsLabel];
  if (digest === undefined || app.startedSettings === null) return true;
  return digest === settingsDigest(app, app.startedSettings);
}
