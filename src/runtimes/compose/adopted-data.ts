/**
 * Data of an adopted stack in the document of its app. Root chose this data by adopting the stack: it counts as the app's
 * own, and the package needs no permission for it.
 */
import { posix } from "node:path";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import type { ContainerClaims } from "../containers/container-policy.ts";
import { checkoutOf } from "../app-tree.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { mapBinds } from "./checkout-binds.ts";
import { listOf, recordOf } from "./compose-values.ts";
import { readServiceMount } from "./service-mounts.ts";

type Adopting = Pick<RunnableApp, "adopted" | "directory" | "checkout">;

/** The document with the adopted paths mounted from their own directory, and mounts that the file does not name. */
export function withAdoptedMounts(document: JsonObject, app: Adopting): JsonObject {
  const { adopted } = app;
  if (adopted === undefined) return document;
  const checkout = posix.join(app.directory, checkoutOf(app));
  const moved = new Map(
    adopted.binds.map((path) => [posix.join(checkout, path), posix.join(adopted.directory, path)]),
  );
  const placed = mapBinds(document, (source) => moved.get(source) ?? source);
  if (adopted.mounts.length === 0) return placed;
  const services = mapValues(recordOf(placed["services"]), (value, name): JsonValue => {
    const mounts = adopted.mounts.filter(({ service }) => service === name);
    if (mounts.length === 0) return value;
    const service = recordOf(value);
    const targets = new Set(mounts.map(({ target }) => target));
    const others = listOf(service["volumes"]).filter((volume) => {
      const { source, target } = readServiceMount(volume);
      return source !== "" || !targets.has(posix.resolve("/", target));
    });
    const added = mounts.map(({ key, target }) => ({ type: "volume", source: key, target }));
    return { ...service, volumes: [...others, ...added] };
  });
  const keys = Object.fromEntries(adopted.mounts.map(({ key }) => [key, null]));
  return { ...placed, services, volumes: { ...recordOf(placed["volumes"]), ...keys } };
}

/** The document that runs: its adopted volumes and networks exist on the engine. */
export function withAdoptedObjects(document: JsonObject, { adopted }: Pick<Adopting, "adopted">): JsonObject {
  if (adopted === undefined) return document;
  const volumes = mapValues(recordOf(document["volumes"]), (volume, key): JsonValue => {
    const name = adopted.volumes[key];
    return name === undefined ? volume : { external: true, name };
  });
  const adoptedNetworks = mapValues(adopted.networks, (name) => ({ external: true, name }));
  // The default network may be missing.
  const declared = { ...(Object.hasOwn(adoptedNetworks, "default") && { default: null }) };
  const networks = mapValues(
    { ...declared, ...recordOf(document["networks"]) },
    (network, key): JsonValue => adoptedNetworks[key] ?? network,
  );
  return { ...document, volumes, networks };
}

/** Reverts {@link withAdoptedObjects} to check a document that ran. */
export function withOwnObjects(document: JsonObject, { adopted }: Pick<Adopting, "adopted">): JsonObject {
  if (adopted === undefined) return document;
  const volumes = mapValues(recordOf(document["volumes"]), (volume, key): JsonValue =>
    Object.hasOwn(adopted.volumes, key) ? null : volume,
  );
  const networks = mapValues(recordOf(document["networks"]), (network, key): JsonValue =>
    Object.hasOwn(adopted.networks, key) ? null : network,
  );
  return { ...document, volumes, networks };
}

/** Claims without the adopted paths. */
export function withoutAdopted(
  claims: readonly ContainerClaims[],
  { adopted }: Pick<Adopting, "adopted">,
): ContainerClaims[] {
  if (adopted === undefined) return [...claims];
  const paths = new Set(adopted.binds.map((path) => posix.join(adopted.directory, path)));
  return claims.map((claim) => ({ ...claim, binds: claim.binds.filter(({ source }) => !paths.has(source)) }));
}
