/** Converts a manifest's settings to plain JSON Schema, for clients and for ajv. */
import type { JsonObject } from "../../lib/json.ts";
import type { SettingDocument, SettingPartDocument } from "../../../gen/manifest-document.ts";
import { settingsOf, type Manifest } from "../manifest/manifest.ts";

/** Whether `pattern` is a valid ECMAScript pattern (with Unicode semantics, as in JSON Schema). */
export function isPattern(pattern: string): boolean {
  try {
    return new RegExp(pattern, "u") instanceof RegExp;
  } catch {
    return false;
  }
}

/**
 * The schema for API clients: without the settings' destinations, and with `secret` as JSON Schema's `writeOnly`.
 * `null` if the package defines no settings.
 */
export function settingsSchema(manifest: Pick<Manifest, "settings">): JsonObject | null {
  const { settings } = manifest;
  if (settings === undefined) return null;
  const { title, description, required } = settings;
  return {
    type: "object",
    ...(title !== undefined && { title }),
    ...(description !== undefined && { description }),
    properties: Object.fromEntries(
      settingsOf(manifest).map(([name, setting]) => [name, schemaOfSetting(setting)]),
    ),
    ...(required !== undefined && { required }),
    additionalProperties: false,
  };
}

function schemaOfSetting(setting: SettingDocument): JsonObject {
  const { env: _env, arg: _arg, file: _file, secret, ...part } = setting;
  return { ...schemaOfPart(part), ...(secret === true && { writeOnly: true }) };
}

function schemaOfPart(part: SettingPartDocument): JsonObject {
  const { items, properties, ...keywords } = part;
  return {
    ...(withoutExtensions(keywords) as JsonObject),
    ...(items && { items: schemaOfPart(items) }),
    ...(properties && {
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, child]) => [name, schemaOfPart(child)]),
      ),
      additionalProperties: false,
    }),
  };
}

function withoutExtensions(keywords: object): object {
  return Object.fromEntries(Object.entries(keywords).filter(([key]) => !key.startsWith("x-")));
}
