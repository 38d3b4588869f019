/**
 * Decides where services mount paths of the checkout. A file, or a directory that is only read, is mounted from the
 * checkout and changes with every version. A writable directory, an empty file, or a path that does not exist, is data:
 * because an upgrade replaces the checkout, it is stored under the same name in the app's `data/`, and starts with the
 * checkout's contents. A package contains an empty file only for the app to fill: otherwise the engine would create a
 * directory there.
 */
import { posix } from "node:path";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { OwnedTree } from "../../run-as/owned-tree.ts";
import { isInside } from "../../lib/paths.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import { appTree, checkoutOf } from "../app-tree.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { entryType } from "../entry-type.ts";
import { readServiceMount } from "./service-mounts.ts";
import { isSet, listOf, recordOf, textOf } from "./compose-values.ts";

type Place = Pick<RunnableApp, "directory" | "checkout">;

/** Temporary name of a directory while it is copied. */
const seeding = posix.join(appTree.data, ".seeding");

/** A bind below the checkout, with its relative path. */
interface CheckoutBind {
  readonly path: string;
  readonly readOnly: boolean;
}

/** Finds the binds of a document that are data. @returns paths relative to the checkout, and to `data/` */
export async function dataBinds(
  userHelper: Pick<UserHelper, "stat">,
  place: Place,
  document: JsonObject,
): Promise<string[]> {
  const binds = checkoutBinds(document, place);
  const isWritten = new Set(binds.filter(({ readOnly }) => !readOnly).map(({ path }) => path));
  const data: string[] = [];
  for (const path of new Set(binds.map((bind) => bind.path))) {
    const below = posix.join(checkoutOf(place), path);
    const type = await entryType(userHelper, place.directory, below);
    const isEmptyFile = type === "file" && (await userHelper.stat(place.directory, below))?.sizeBytes === 0;
    if (type === undefined || (isWritten.has(path) && (type === "directory" || isEmptyFile))) data.push(path);
  }
  return data;
}

/**
 * The document with data mounted from `data/`. A service that mounts the whole checkout gets the data in it, like the
 * services that mount only the data: airflow, for example, prepares directories for others in this way.
 * @param data result of {@link dataBinds}
 */
export function withData(document: JsonObject, place: Place, data: readonly string[]): JsonObject {
  const checkout = posix.join(place.directory, checkoutOf(place));
  const moved = new Map(
    data.map((path) => [posix.join(checkout, path), posix.join(place.directory, appTree.data, path)]),
  );
  const services = mapValues(recordOf(document["services"]), (value): JsonValue => {
    const service = recordOf(value);
    const added = mountsInCheckout(service, checkout, data);
    return added.length === 0 ? service : { ...service, volumes: [...listOf(service["volumes"]), ...added] };
  });
  return mapBinds({ ...document, services }, (source) => moved.get(source) ?? source);
}

/** Mounts of data inside a service's writable mounts of the whole checkout, except at targets that the service mounts itself. */
function mountsInCheckout(service: JsonObject, checkout: string, data: readonly string[]): JsonObject[] {
  const volumes = listOf(service["volumes"]);
  const taken = new Set(volumes.map((volume) => posix.resolve("/", readServiceMount(volume).target)));
  return volumes.flatMap((volume) => {
    const { type, source, target, readOnly } = readServiceMount(volume);
    if (typeof volume === "string" || type !== "bind" || readOnly || normalize(source) !== checkout)
      return [];
    return data
      .map((path) => ({
        ...recordOf(volume),
        ...{ source: posix.join(checkout, path), target: posix.resolve("/", target, path) },
      }))
      .filter((mount) => !taken.has(mount.target));
  });
}

/**
 * Creates missing data: a copy of the checkout's contents, an empty file, or an empty directory.
 * @param data result of {@link dataBinds}; the parent directories are held
 */
export async function seedData(
  userHelper: Pick<UserHelper, "stat">,
  tree: OwnedTree,
  data: readonly string[],
): Promise<void> {
  for (const path of data) {
    const [from, to] = [posix.join(appTree.repo, path), posix.join(appTree.data, path)];
    if (await tree.has(to)) continue;
    await tree.makeDirs([posix.dirname(to)]);
    await tree.remove(seeding);
    const shipped = await userHelper.stat(tree.root, from);
    if (shipped?.type === "file") await tree.writeFile(seeding, "", shipped.mode);
    else if (shipped !== undefined) await tree.copy(from, tree, seeding);
    else await tree.makeDirs([seeding]);
    await tree.rename(seeding, to);
  }
}

/**
 * Moves data from the checkout of the last run to `data/`. The app's containers must not run.
 * @param types types of entries to move
 */
export async function moveData(
  userHelper: Pick<UserHelper, "stat">,
  tree: OwnedTree,
  document: JsonObject,
  types: readonly string[],
): Promise<void> {
  const found: [from: string, to: string][] = [];
  for (const { path, readOnly } of checkoutBinds(document, { directory: tree.root })) {
    const [from, to] = [posix.join(appTree.repo, path), posix.join(appTree.data, path)];
    const type = readOnly ? undefined : await entryType(userHelper, tree.root, from);
    if (type !== undefined && types.includes(type) && !(await tree.has(to))) found.push([from, to]);
  }
  if (found.length === 0) return;
  // Inner directories first, because each has its own target.
  found.sort(([a], [b]) => b.length - a.length);
  await tree.hold(found.flat());
  for (const [from, to] of found) {
    await tree.makeDirs([posix.dirname(to)]);
    if (!(await tree.has(to))) await tree.rename(from, to);
  }
}

function checkoutBinds(document: JsonObject, place: Place): CheckoutBind[] {
  const checkout = posix.join(place.directory, checkoutOf(place));
  const binds: CheckoutBind[] = [];
  mapBinds(document, (source, readOnly) => {
    if (source !== checkout && isInside(checkout, source)) {
      binds.push({ path: posix.relative(checkout, source), readOnly });
    }
    return source;
  });
  return binds;
}

/** The document with mapped sources of its binds. */
export function mapBinds(
  document: JsonObject,
  map: (source: string, readOnly: boolean) => string,
): JsonObject {
  const mapVolume = (volume: JsonValue): JsonValue => {
    if (typeof volume !== "string") {
      const mount = recordOf(volume);
      if (mount["type"] !== "bind") return volume;
      return { ...mount, source: map(normalize(textOf(mount["source"])), mount["read_only"] === true) };
    }
    const [source = "", target, mode = "", ...rest] = volume.split(":");
    if (!source.startsWith("/") || target === undefined) return volume;
    const mapped = map(normalize(source), mode.split(",").includes("ro"));
    return [mapped, target, ...(mode === "" ? [] : [mode]), ...rest].join(":");
  };
  const mapService = (service: JsonValue): JsonObject => {
    const { volumes = null, ...others } = recordOf(service);
    return { ...others, ...(isSet(volumes) && { volumes: listOf(volumes).map(mapVolume) }) };
  };
  return { ...document, services: mapValues(recordOf(document["services"]), mapService) };
}

function normalize(path: string): string {
  return posix.normalize(path).replace(/(.)\/$/, "$1");
}
