/** Directories, ports and settings for an app's commands, as placeholders and as environment variables. */
import { join } from "node:path";
import { mapValues } from "../lib/map-values.ts";
import { expandPlaceholders } from "../packages/manifest/placeholders.ts";
import type { Command } from "../packages/manifest/manifest.ts";
import { resolvePorts, resolveSettings } from "../packages/settings/settings.ts";
import type { RunnableApp } from "./runnable-app.ts";
import { appTree, checkoutOf } from "./app-tree.ts";

/** A command with all placeholders filled in. */
export interface PreparedCommand {
  readonly argv: readonly string[];
  /** Absolute. */
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

/** Fills in the app's placeholders for its commands on the host. */
export function appExpander(app: RunnableApp): (text: string) => string {
  const { manifest, directory } = app;
  const scope: Record<string, string> = {
    id: app.id,
    name: app.name,
    repo: join(directory, checkoutOf(app)),
    data: join(directory, appTree.data),
  };
  for (const volume of manifest.volumes) {
    scope[`volumes.${volume.name}`] = join(directory, appTree.volumes, volume.path);
  }
  for (const { name, port } of resolvePorts(manifest, app.settings)) scope[`ports.${name}`] = String(port);
  for (const [name, text] of Object.entries(resolveSettings(manifest, app.settings).texts)) {
    scope[`settings.${name}`] = text;
  }
  return (text) => expandPlaceholders(text, scope);
}

/** The environment of the app's commands, on top of the owner's base environment. */
export function appEnvironment(app: RunnableApp): Record<string, string> {
  return {
    SVC_APP_ID: app.id,
    SVC_APP_DIR: app.directory,
    SVC_DATA_DIR: join(app.directory, appTree.data),
  };
}

/** Prepares a build or migration step that runs in the checkout. */
export function prepareStep(app: RunnableApp, command: Command): PreparedCommand {
  const expand = appExpander(app);
  return {
    argv: command.argv.map(expand),
    cwd: join(app.directory, checkoutOf(app), command.workingDir),
    env: { ...appEnvironment(app), ...mapValues(command.env, expand) },
  };
}

/**
 * Prepares the app's command; for an app without one, such as a service whose unit specifies it, only the settings'
 * arguments.
 * @throws Error for an app that does not run as processes.
 */
export function prepareProcess(app: RunnableApp): PreparedCommand {
  const { runtime } = app.manifest;
  if (runtime.kind !== "process" && runtime.kind !== "service")
    throw new Error(`app ${app.id} runs as ${runtime.kind}`);
  const expand = appExpander(app);
  const settings = resolveSettings(app.manifest, app.settings);
  return {
    argv: [...(runtime.argv ?? []).map(expand), ...settings.args],
    cwd: join(app.directory, checkoutOf(app), runtime.workingDir),
    env: { ...mapValues(runtime.env, expand), ...settings.env, ...appEnvironment(app) },
  };
}
