/** Compares a manifest with the ports that its compose file publishes: people edit the file after the manifest was generated. */
import type { SettingDocument } from "../../../gen/manifest-document.ts";
import type { JsonObject } from "../../lib/json.ts";
import { manifestFileName, settingsOf, type Manifest } from "../../packages/manifest/manifest.ts";
import { placeholdersIn } from "../../packages/manifest/placeholders.ts";
import { resolvePorts } from "../../packages/settings/settings.ts";
import type { CurrentManifest } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { recordOf } from "./compose-values.ts";
import {
  fixedPorts,
  portNames,
  publishedPorts,
  type FixedPort,
  type PublishedPort,
} from "./service-ports.ts";

/**
 * The manifest with the numbers of `document`. A port that only the file has needs no entry: it is shown while it is published.
 * @param app without choices for fixed ports, so that the document publishes the numbers of the file
 */
export function withCurrentPorts(
  { manifest, settings }: Pick<RunnableApp, "manifest" | "settings">,
  document: JsonObject,
): CurrentManifest {
  const published = publishedPorts(document);
  const numbers = new Set(published.map(keyOf));
  const listed = new Set(resolvePorts(manifest, settings).map(({ port, protocol }) => `${port}/${protocol}`));
  const unlisted = published.filter((port) => !listed.has(keyOf(port)));
  const fixed = fixedPorts(manifest);
  const lost = fixed.filter(({ written, protocol }) => !numbers.has(`${written}/${protocol}`));
  const pairs = pairedPorts(lost, unlisted);
  const moved = movedSettings(fixed, lost, pairs);
  const file = manifest.runtime.kind === "compose" ? manifest.runtime.file : "";
  const unpublished = lost.filter(({ setting }) => !moved.has(setting));
  const isOnHost = usesHostNetwork(document);
  const gone = isOnHost ? [] : unpublished;
  const notes = [
    ...lost.flatMap(({ name, written, setting }) => {
      const number = moved.get(setting);
      if (number === undefined) return [];
      const remedy = `change the default of ${setting} there`;
      return [
        `port "${name}" is ${number}, as in ${file}; ${manifestFileName} still says ${written}: ${remedy}`,
      ];
    }),
    ...gone.map(
      ({ name, written }) =>
        `${file} does not publish port "${name}" (${written}) any more; remove it from ports in ${manifestFileName}`,
    ),
  ];
  const removed = new Set(gone.filter(isUnused(manifest)).map(({ name }) => name));
  return {
    manifest: {
      ...withDefaults(manifest, moved),
      ports: manifest.ports.filter(({ name }) => !removed.has(name)),
    },
    notes,
    usesHostNetwork: isOnHost,
  };
}

/** The variables that give ports their numbers, by setting. */
export function portVariables(manifest: Manifest): ReadonlyMap<string, string> {
  const ofPorts = new Set(manifest.ports.map(({ setting }) => setting));
  return new Map(
    settingsOf(manifest).flatMap(([key, { env, default: written }]): [string, string][] =>
      env !== undefined && typeof written === "number" && ofPorts.has(key) ? [[key, env]] : [],
    ),
  );
}

/** The manifest with the numbers of `.env`, which people edit, for ports whose number nobody chose in svc. */
export function withDotenvPorts(
  { manifest, settings }: Pick<RunnableApp, "manifest" | "settings">,
  variables: ReadonlyMap<string, string>,
  values: ReadonlyMap<string, string>,
): Pick<CurrentManifest, "manifest" | "notes"> {
  const schemas = new Map(settingsOf(manifest));
  const moved = new Map(
    [...variables].flatMap(([key, variable]): [string, number][] => {
      const number = Number(values.get(variable));
      const isPort = Number.isInteger(number) && number > 0 && number <= 65_535;
      return isPort && number !== schemas.get(key)?.default ? [[key, number]] : [];
    }),
  );
  const followed = manifest.ports.filter(
    ({ setting = "" }) => moved.has(setting) && !Object.hasOwn(settings, setting),
  );
  return {
    manifest: withDefaults(manifest, moved),
    notes: followed.map(({ name, setting = "" }) => `port "${name}" is ${moved.get(setting)}, as in .env`),
  };
}

/** By the names that generated manifests give to the ports of a service. */
function pairedPorts(
  lost: readonly FixedPort[],
  unlisted: readonly PublishedPort[],
): ReadonlyMap<string, PublishedPort> {
  const pairs = new Map<string, PublishedPort>();
  const left = new Set(unlisted);
  // Long names contain the port in the container, so they match exactly.
  for (const { name, protocol } of lost.toSorted((a, b) => b.name.length - a.name.length)) {
    const port = [...left].find((each) => each.protocol === protocol && portNames(each).includes(name));
    if (port === undefined) continue;
    pairs.set(name, port);
    left.delete(port);
  }
  return pairs;
}

/** New numbers by setting, if all ports with the setting have the same one. */
function movedSettings(
  fixed: readonly FixedPort[],
  lost: readonly FixedPort[],
  pairs: ReadonlyMap<string, PublishedPort>,
): ReadonlyMap<string, number> {
  const moved = new Map<string, number>();
  for (const { name, setting } of lost) {
    const number = pairs.get(name)?.published;
    const others = fixed.filter((port) => port.setting === setting);
    if (number !== undefined && others.every((port) => pairs.get(port.name)?.published === number))
      moved.set(setting, number);
  }
  return moved;
}

function withDefaults(manifest: Manifest, numbers: ReadonlyMap<string, number>): Manifest {
  if (manifest.settings?.properties === undefined) return manifest;
  const changed = settingsOf(manifest).map(([key, setting]): [string, SettingDocument] => [
    key,
    { ...setting, ...(numbers.has(key) && { default: numbers.get(key) ?? null }) },
  ]);
  return { ...manifest, settings: { ...manifest.settings, properties: Object.fromEntries(changed) } };
}

/** A service on the host's network listens on ports that the file does not publish. */
function usesHostNetwork(document: JsonObject): boolean {
  return Object.values(recordOf(document["services"])).some(
    (service) => recordOf(service)["network_mode"] === "host",
  );
}

function isUnused(manifest: Manifest): (port: FixedPort) => boolean {
  const used = new Set(placeholdersIn(JSON.stringify(manifest)));
  const probe = manifest.health?.probe;
  return ({ name }) => !used.has(`ports.${name}`) && !(probe && "port" in probe && probe.port === name);
}

function keyOf({ published, protocol }: PublishedPort): string {
  return `${published}/${protocol}`;
}
