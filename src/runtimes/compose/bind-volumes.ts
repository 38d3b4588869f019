/** Volumes of the local driver that mount a directory: those in the package become plain binds, which are judged and stored as such. */
import { posix } from "node:path";
import { isInside } from "../../lib/paths.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import { isSet, listOf, recordOf, textOf } from "./compose-values.ts";

/** Options of a bind that do not change what is mounted. */
const bindWords = new Set(["bind", "rbind", "rw", "ro"]);

interface BindVolume {
  readonly device: string;
  readonly readOnly: boolean;
}

/**
 * The document without volumes that mount a directory of the checkout. Otherwise an upgrade would replace the
 * directory, and the engine would mount it as root by its path.
 * @param checkout absolute path
 */
export function withBindVolumes(document: JsonObject, checkout: string): JsonObject {
  const { volumes, ...rest } = document;
  const binds = new Map<string, BindVolume>();
  const others: [name: string, volume: JsonValue][] = [];
  for (const [name, volume] of Object.entries(recordOf(volumes))) {
    const bind = bindVolume(recordOf(volume), checkout);
    if (bind === undefined) others.push([name, volume]);
    else binds.set(name, bind);
  }
  if (binds.size === 0) return document;
  const services = mapValues(recordOf(document["services"]), (value): JsonValue => {
    const service = recordOf(value);
    if (!isSet(service["volumes"])) return service;
    return { ...service, volumes: listOf(service["volumes"]).map((mount) => withBind(mount, binds)) };
  });
  return { ...rest, services, volumes: Object.fromEntries(others) };
}

function bindVolume(volume: JsonObject, checkout: string): BindVolume | undefined {
  const { driver, driver_opts: options, external } = volume;
  const { type = "", o = "", device, ...others } = recordOf(options);
  const words = textOf(o).split(",");
  const isBind =
    !isSet(external) &&
    ["", "local"].includes(textOf(driver)) &&
    ["", "none", "bind"].includes(textOf(type)) &&
    Object.keys(others).length === 0 &&
    words.some((word) => /^r?bind$/.test(word)) &&
    words.every((word) => bindWords.has(word));
  const path = posix.normalize(textOf(device));
  if (!isBind || !path.startsWith("/") || !isInside(checkout, path)) return undefined;
  return { device: path, readOnly: words.includes("ro") };
}

function withBind(mount: JsonValue, binds: ReadonlyMap<string, BindVolume>): JsonValue {
  if (typeof mount === "string") {
    const [name = "", target, mode = ""] = mount.split(":");
    const bind = target === undefined ? undefined : binds.get(name);
    if (bind === undefined) return mount;
    const modes = mode.split(",").filter((word) => word !== "nocopy" && word !== "");
    const all =
      bind.readOnly && !modes.includes("ro") ? ["ro", ...modes.filter((word) => word !== "rw")] : modes;
    return [bind.device, target, ...(all.length > 0 ? [all.join(",")] : [])].join(":");
  }
  const { type, source, volume, read_only: readOnly, ...others } = recordOf(mount);
  const bind = type === "volume" ? binds.get(textOf(source)) : undefined;
  if (bind === undefined) return mount;
  const isReadOnly = bind.readOnly || readOnly === true;
  return {
    ...others,
    ...{ type: "bind", source: posix.join(bind.device, textOf(recordOf(volume)["subpath"])) },
    ...(isReadOnly && { read_only: true }),
  };
}
