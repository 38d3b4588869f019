/** Reading and replacing an app's chosen settings. */
import { invalidField } from "../errors.ts";
import type { JsonObject } from "../lib/json.ts";
import type { Manifest } from "../packages/manifest.ts";
import { keepMaskedSecrets, maskSecrets, mergeDefaults } from "../packages/settings.ts";
import { settingsSchema } from "../packages/settings-schema.ts";
import type { SettingsValidator } from "../packages/settings-validator.ts";
import { patchApp, type AppRecord } from "./app-record.ts";
import { changedSettings } from "./app-view.ts";
import { requireOpenPorts } from "./privileged-ports.ts";
import type { AppsContext } from "./apps-context.ts";

export interface SettingsView {
  /** JSON Schema; null when the package defines no settings. */
  schema: JsonObject | null;
  /** Chosen values over the defaults; secrets read `"***"`. */
  values: JsonObject;
  /** The values that it runs with, as {@link values} are; absent while it does not run. */
  running?: JsonObject;
  /** The keys of which it runs with other values. */
  changed: string[];
  restartRequired: boolean;
}

export interface AppSettingsOptions extends AppsContext {
  validator: SettingsValidator;
  isUp: (app: AppRecord) => boolean;
}

export class AppSettings {
  readonly #options: AppSettingsOptions;

  constructor(options: AppSettingsOptions) {
    this.#options = options;
  }

  view(app: AppRecord): SettingsView {
    const { manifest, settings, startedSettings } = app;
    const isUp = this.#options.isUp(app);
    const changed = isUp ? changedSettings(app) : [];
    return {
      schema: settingsSchema(manifest),
      values: maskSecrets(manifest, mergeDefaults(manifest, settings)),
      ...(isUp && startedSettings !== null && { running: maskSecrets(manifest, startedSettings) }),
      changed,
      restartRequired: changed.length > 0,
    };
  }

  /**
   * Replaces the chosen values; what the package does not define or its schema refuses changes nothing.
   * @throws SvcError `invalid_request` with one violation per field, `app_busy`
   */
  async replace(app: AppRecord, values: JsonObject): Promise<void> {
    const { registry, operations, identities, now } = this.#options;
    await operations.during({ appId: app.id, kind: "settings", phase: "write" }, async () => {
      const held = registry.get(app.id) ?? app;
      const settings = keepMaskedSecrets(held.manifest, values, held.settings);
      await this.validate(held.manifest, settings, held.ownerUid);
      await requireOpenPorts({ ...held, values: settings, selfUid: identities.selfUid });
      return patchApp(app.id, { settings, changedAtMs: now() });
    });
  }

  /** @param ownerUid in whose turn @throws SvcError `invalid_request` with one violation per field. */
  async validate(manifest: Manifest, values: JsonObject, ownerUid: number): Promise<void> {
    if (manifest.settings === undefined) {
      const [unknown] = Object.keys(values);
      if (unknown !== undefined) {
        throw invalidField(`values.${unknown}`, `is no setting: ${manifest.name} defines none`);
      }
      return;
    }
    await this.#options.validator.validate(manifest, mergeDefaults(manifest, values), ownerUid);
  }
}
