/** Placeholders and environment inside an app's container, where directories have other paths. */
import { join, normalize } from "node:path";
import { mapValues } from "../../lib/map-values.ts";
import { expandPlaceholders, placeholdersIn } from "../../packages/manifest/placeholders.ts";
import { resolvePorts, resolveSettings } from "../../packages/settings/settings.ts";
import { settingsOf, type DockerRuntime } from "../../packages/manifest/manifest.ts";
import { appTree, checkoutOf } from "../app-tree.ts";
import type { RunnableApp } from "../runnable-app.ts";

/** Paths of the data directory and the checkout in the container, if it uses them. */
export const mountPoints = { data: "/svc/data", repo: "/svc/repo" } as const;

/** A directory of the app that its container mounts. */
export interface AppMount {
  /** Absolute path on the host. */
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/** Fills in a manifest's placeholders for a container. */
export function containerExpander(app: RunnableApp): (text: string) => string {
  const { manifest, settings } = app;
  const scope: Record<string, string> = { id: app.id, name: app.name, ...mountPoints };
  for (const { name, path } of manifest.volumes) scope[`volumes.${name}`] = path;
  // In the container, the app listens on its image's port; the setting is the host's port.
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
 * The manifest's volumes; the data directory, if a setting is written to a file in it or a text uses `${data}`; the
 * read-only checkout, if a text uses `${repo}`. Unused directories are not mounted.
 */
export function appMounts(app: RunnableApp, runtime: DockerRuntime): AppMount[] {
  const { manifest, directory } = app;
  const named = usedPlaceholders(app, runtime);
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

/** Placeholders in the container's texts, such as `data` and `repo`. */
export function usedPlaceholders(
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

/** Variables that the container sets in addition to those of its image. */
export function containerEnvironment(app: RunnableApp, runtime: DockerRuntime): Record<string, string> {
  return {
    ...mapValues(runtime.env, containerExpander(app)),
    ...resolveSettings(app.manifest, app.settings).env,
    SVC_APP_ID: app.id,
  };
}
