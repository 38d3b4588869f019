/** What placeholders and environment mean inside an app's container, where its directories have other paths. */
import { join, normalize } from "node:path";
import { mapValues } from "../../lib/map-values.ts";
import { expandPlaceholders, placeholdersIn } from "../../packages/placeholders.ts";
import { resolvePorts, resolveSettings } from "../../packages/settings.ts";
import { settingsOf, type DockerRuntime } from "../../packages/manifest.ts";
import { appTree, checkoutOf } from "../app-tree.ts";
import type { RunnableApp } from "../runtime.ts";

/** Where the container finds the data directory and the checkout, if it names them. */
export const mountPoints = { data: "/svc/data", repo: "/svc/repo" } as const;

/** A directory of the app that its container sees. */
export interface AppMount {
  /** Absolute, on the host. */
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/** Fills in the texts of a manifest for a container. */
export function containerExpander(app: RunnableApp): (text: string) => string {
  const { manifest, settings } = app;
  const scope: Record<string, string> = { id: app.id, name: app.name, ...mountPoints };
  for (const { name, path } of manifest.volumes) scope[`volumes.${name}`] = path;
  // Inside, an app listens where its image does; what is set is the host's port.
  const inside = new Map(manifest.ports.map(({ name, containerPort }) => [name, containerPort]));
  for (const { name, port } of resolvePorts(manifest, settings)) {
    scope[`ports.${name}`] = String(inside.get(name) ?? port);
  }
  for (const [name, text] of Object.entries(resolveSettings(manifest, settings).texts)) {
    scope[`settings.${name}`] = text;
  }
  return (text) => expandPlaceholders(text, scope);
}

/**
 * The volumes of the manifest; the data directory where a setting is written into a file of it or something names
 * `${data}`; the checkout, to read, where something names `${repo}`. What is not needed is not shown to the container.
 */
export function appMounts(app: RunnableApp, runtime: DockerRuntime): AppMount[] {
  const { manifest, directory } = app;
  const named = namedPlaces(app, runtime);
  const writesFiles = settingsOf(manifest).some(([, { file }]) => file !== undefined);
  return [
    ...manifest.volumes.map((volume) => ({
      source: join(directory, appTree.volumes, volume.path),
      target: normalize(volume.path),
      readOnly: false,
    })),
    ...(writesFiles || named.has("data")
      ? [{ source: join(directory, appTree.data), target: mountPoints.data, readOnly: false }]
      : []),
    ...(named.has("repo")
      ? [{ source: join(directory, checkoutOf(app)), target: mountPoints.repo, readOnly: true }]
      : []),
  ];
}

/** Placeholders in whatever the container is told. */
export function namedPlaces(
  { manifest }: Pick<RunnableApp, "manifest">,
  runtime: DockerRuntime,
): Set<string> {
  const texts = [
    ...(runtime.command ?? []),
    ...Object.values(runtime.env),
    ...(manifest.health?.probe.kind === "exec" ? manifest.health.probe.argv : []),
    ...(manifest.console?.argv ?? []),
  ];
  return new Set(texts.flatMap(placeholdersIn));
}

/** The environment of the container, beside its image's. */
export function containerEnvironment(app: RunnableApp, runtime: DockerRuntime): Record<string, string> {
  return {
    ...mapValues(runtime.env, containerExpander(app)),
    ...resolveSettings(app.manifest, app.settings).env,
    SVC_APP_ID: app.id,
  };
}
