/** Reads and replaces an app's chosen settings. */
import { invalidField } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { rootShare } from "../../lib/share-owner.ts";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import { retainMaskedSecrets, maskSecrets, mergeDefaults } from "../../packages/settings/settings.ts";
import { settingsSchema } from "../../packages/settings/settings-schema.ts";
import type { SettingsValidator } from "../../packages/settings/settings-validator.ts";
import { isUp } from "../../runtimes/runtime-status.ts";
import type { AppCaller } from "./app-registry.ts";
import { patchApp, type AppRecord } from "./app-record.ts";
import { changedSettings } from "./app-view.ts";
import { requireOpenPorts } from "../ports/privileged-ports.ts";
import type { AppsContext } from "../apps-context.ts";

export interface SettingsView {
  /** JSON Schema; null if the package defines no settings. */
  schema: JsonObject | null;
  /** Chosen values over the defaults; secrets read `"***"`. */
  values: JsonObject;
  /** The values of the running app, in the form of {@link values}; absent while it does not run. */
  running?: JsonObject;
  /** The keys whose values differ in the running app. */
  changed: string[];
  restartRequired: boolean;
}

export interface AppSettingsOptions extends AppsContext {
  validator: SettingsValidator;
}

export class AppSettings {
  readonly #options: AppSettingsOptions;

  constructor(options: AppSettingsOptions) {
    this.#options = options;
  }

  view(app: AppRecord): SettingsView {
    const { manifest, settings, startedSettings } = app;
    const isRunning = isUp(this.#options.runtimeOf(app).status(app.id)?.state);
    const changed = isRunning ? changedSettings(app) : [];
    return {
      schema: settingsSchema(manifest),
      values: maskSecrets(manifest, mergeDefaults(manifest, settings)),
      ...(isRunning && startedSettings !== null && { running: maskSecrets(manifest, startedSettings) }),
      changed,
      restartRequired: changed.length > 0,
    };
  }

  /** One remark for each port that something else uses. */
  portConflicts(app: AppRecord): Promise<string[]> {
    return this.#options.ports.conflicts(app);
  }

  /**
   * Replaces the chosen values. Unknown keys and values that the schema rejects change nothing.
   * @throws SvcError `invalid_request` with one violation per field, `app_busy`
   */
  async replace(app: AppRecord, values: JsonObject, caller: AppCaller, signal?: AbortSignal): Promise<void> {
    const uid = caller.root ? rootShare : caller.uid;
    const { registry, operations, userHelpers, daemonPort, now } = this.#options;
    await operations.during({ appId: app.id, kind: "settings", phase: "write" }, async () => {
      const current = registry.get(app.id) ?? app;
      const settings = retainMaskedSecrets(current.manifest, values, current.settings);
      await this.validate(current.manifest, settings, uid, signal);
      await requireOpenPorts({ ...current, values: settings, selfUid: userHelpers.selfUid, daemonPort });
      return patchApp(app.id, { settings, changedAtMs: now() });
    });
  }

  /** @param uid the user whose queue the check waits in @throws SvcError `invalid_request` with one violation per field */
  async validate(manifest: Manifest, values: JsonObject, uid: number, signal?: AbortSignal): Promise<void> {
    if (manifest.settings === undefined) {
      const [unknown] = Object.keys(values);
      if (unknown !== undefined) {
        throw invalidField(`values.${unknown}`, `is unknown: ${manifest.name} has no settings`);
      }
      return;
    }
    await this.#options.validator.validate(manifest, mergeDefaults(manifest, values), uid, signal);
  }
}
