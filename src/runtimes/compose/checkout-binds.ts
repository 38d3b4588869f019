/**
 * What services mount of the checkout. A file of it, or a directory that is only read, is mounted where it is and is new
 * with every version. A directory that is written to, and what is not there, is data: an upgrade replaces the checkout,
 * so it lives under the same name in the app's `data/`, and begins as what the checkout has of it.
 */
import { posix } from "node:path";
import type { Identity } from "../../identity/identity.ts";
import type { OwnedTree } from "../../identity/owned-tree.ts";
import { isInside } from "../../lib/is-inside.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import { appTree, checkoutOf } from "../app-tree.ts";
import type { RunnableApp } from "../runtime.ts";
import { entryType } from "../entry-type.ts";
import { isSet, listOf, recordOf, textOf } from "./compose-values.ts";

type Place = Pick<RunnableApp, "directory" | "checkout">;

/** While it is copied, a directory has this name. */
const seeding = posix.join(appTree.data, ".seeding");

/** A path below the checkout, relative to it. */
interface CheckoutBind {
  readonly path: string;
  readonly readOnly: boolean;
}

/** Which binds of a document are data. @returns paths relative to the checkout, and to `data/` */
export async function dataBinds(
  identity: Pick<Identity, "stat">,
  place: Place,
  document: JsonObject,
): Promise<string[]> {
  const binds = checkoutBinds(document, place);
  const isWritten = new Set(binds.filter(({ readOnly }) => !readOnly).map(({ path }) => path));
  const data: string[] = [];
  for (const path of new Set(binds.map((bind) => bind.path))) {
    const type = await entryType(identity, place.directory, posix.join(checkoutOf(place), path));
    if (type === undefined || (type === "directory" && isWritten.has(path))) data.push(path);
  }
  return data;
}

/** The document with its data where they live. @param data what {@link dataBinds} found */
export function withData(document: JsonObject, place: Place, data: readonly string[]): JsonObject {
  const { directory } = place;
  const moved = new Map(
    data.map((path) => [
      posix.join(directory, checkoutOf(place), path),
      posix.join(directory, appTree.data, path),
    ]),
  );
  return mapBinds(document, (source) => moved.get(source) ?? source);
}

/**
 * Gives data that are not in their place a beginning: what the checkout has, or an empty directory.
 * @param data what {@link dataBinds} found; what leads there is held
 */
export async function seedData(tree: OwnedTree, data: readonly string[]): Promise<void> {
  for (const path of data) {
    const [from, to] = [posix.join(appTree.repo, path), posix.join(appTree.data, path)];
    if (await tree.has(to)) continue;
    await tree.makeDirs([posix.dirname(to)]);
    await tree.remove(seeding);
    if (await tree.has(from)) await tree.copy(from, tree, seeding);
    else await tree.makeDirs([seeding]);
    await tree.rename(seeding, to);
  }
}

/**
 * Moves data that an app has in its checkout, as it was last run, to their place. Its containers must not run.
 * @param types of what is moved
 */
export async function moveData(
  identity: Pick<Identity, "stat">,
  tree: OwnedTree,
  document: JsonObject,
  types: readonly string[],
): Promise<void> {
  const found: [from: string, to: string][] = [];
  for (const { path, readOnly } of checkoutBinds(document, { directory: tree.root })) {
    const [from, to] = [posix.join(appTree.repo, path), posix.join(appTree.data, path)];
    const type = readOnly ? undefined : await entryType(identity, tree.root, from);
    if (type !== undefined && types.includes(type) && !(await tree.has(to))) found.push([from, to]);
  }
  if (found.length === 0) return;
  // The inner ones first: they have places of their own.
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

/** The document with other sources of its binds. */
function mapBinds(document: JsonObject, map: (source: string, readOnly: boolean) => string): JsonObject {
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
