/** Parses the published ports of services: `[ADDRESS:][[HOST]:]INSIDE[/PROTOCOL]`, or the long form. */
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import { settingsOf, type Manifest, type ManifestPort } from "../../packages/manifest/manifest.ts";
import { placeholdersIn } from "../../packages/manifest/placeholders.ts";
import { mergeDefaults, resolveAddresses, resolvePorts } from "../../packages/settings/settings.ts";
import type { PublishOptions } from "../containers/published-ports.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { isSet, listOf, recordOf, textOf } from "./compose-values.ts";

export interface ServicePort {
  /** Host address; empty: all addresses. */
  readonly address: string;
  /** A number, a range, or empty for any free port. */
  readonly published: string;
  readonly target: string;
  readonly protocol: string;
}

export function readServicePort(port: JsonValue): ServicePort {
  if (typeof port === "object") {
    const { host_ip: address = null, published = null, target = null, protocol = null } = recordOf(port);
    return {
      address: textOf(address),
      published: textOf(published),
      target: textOf(target),
      protocol: textOf(protocol) || "tcp",
    };
  }
  const [plain = "", protocol = "tcp"] = textOf(port).split("/");
  // An address in brackets contains colons.
  const [, bracketed, rest = ""] = /^(?:\[([^\]]*)\]:)?(.*)$/.exec(plain) ?? [];
  const parts = rest.split(":");
  return {
    address: bracketed ?? parts.slice(0, -2).join(":"),
    published: parts.at(-2) ?? "",
    target: parts.at(-1) ?? "",
    protocol,
  };
}

/**
 * Publishes the chosen number of a port that the file fixes, and sets the address of ports without one: the one that
 * the app's manifest gives this port, else the daemon's.
 */
export function withHostPorts(
  document: JsonObject,
  app: Pick<RunnableApp, "manifest" | "settings">,
  { publishAddress }: PublishOptions,
): JsonObject {
  const named = resolveAddresses(app.manifest, app.settings);
  const chosen = new Map(
    resolvePorts(app.manifest, app.settings).map(({ name, port, protocol }) => [
      `${port}/${protocol}`,
      named.get(name),
    ]),
  );
  const moved = movedPorts(app);
  const addressed = (port: JsonValue): JsonValue => {
    const { address, published, target, protocol } = readServicePort(port);
    const hostAddress = chosen.get(`${published}/${protocol}`) ?? publishAddress;
    if (address !== "") return port;
    // Compose v1 supports addresses only in the short form.
    return shortPort({ address: hostAddress, published, target, protocol });
  };
  const services = mapValues(recordOf(document["services"]), (value): JsonValue => {
    const service = recordOf(value);
    if (!isSet(service["ports"])) return value;
    const ports = listOf(service["ports"]).flatMap((port) => movedPort(port, moved));
    return { ...service, ports: ports.map(addressed) };
  });
  return { ...document, services };
}

function shortPort({ address, published, target, protocol }: ServicePort): string {
  const host = address.includes(":") ? `[${address}]` : address;
  return `${host === "" ? "" : `${host}:`}${published}:${target}/${protocol}`;
}

/** A port whose number only the compose file gives. */
export interface FixedPort extends Pick<ManifestPort, "name" | "protocol"> {
  readonly setting: string;
  /** The number in the manifest. */
  readonly written: number;
}

/** The ports whose setting reaches the file in no other way, because compose puts the values of variables in. */
export function fixedPorts(manifest: Manifest): FixedPort[] {
  const schemas = new Map(settingsOf(manifest));
  const inTexts = manifest.runtime.kind === "compose" ? Object.values(manifest.runtime.env).join("") : "";
  const used = new Set(placeholdersIn(inTexts));
  return manifest.ports.flatMap(({ name, setting = "", protocol }): FixedPort[] => {
    const { default: written, env } = schemas.get(setting) ?? {};
    if (env !== undefined || used.has(`ports.${name}`) || used.has(`settings.${setting}`)) return [];
    return typeof written === "number" ? [{ name, setting, protocol, written }] : [];
  });
}

/** New host ports by `PORT/PROTOCOL` of the file. */
function movedPorts({
  manifest,
  settings,
}: Pick<RunnableApp, "manifest" | "settings">): ReadonlyMap<string, number> {
  const merged = mergeDefaults(manifest, settings);
  return new Map(
    fixedPorts(manifest).flatMap(({ setting, written, protocol }): [string, number][] => {
      const port = merged[setting];
      return typeof port !== "number" || written === port ? [] : [[`${written}/${protocol}`, port]];
    }),
  );
}

/** A port of the file with its new number; each of a range by itself if one of them moves. */
function movedPort(port: JsonValue, moved: ReadonlyMap<string, number>): JsonValue[] {
  if (moved.size === 0) return [port];
  const written = readServicePort(port);
  const singles = spannedPorts(written) ?? [];
  const newOf = (published: number): number | undefined => moved.get(`${published}/${written.protocol}`);
  if (!singles.some(({ published }) => newOf(published) !== undefined)) return [port];
  return singles.map(({ target, published }) => {
    const number = { target: String(target), published: String(newOf(published) ?? published) };
    if (singles.length === 1 && typeof port === "object")
      return { ...recordOf(port), published: number.published };
    return shortPort({ ...written, ...number });
  });
}

/** The ports of all services. */
export function documentPorts(document: JsonObject): ServicePort[] {
  return Object.values(recordOf(document["services"])).flatMap((service) =>
    listOf(recordOf(service)["ports"]).map(readServicePort),
  );
}

/** A host port of a service. */
export interface PublishedPort {
  readonly service: string;
  readonly target: number;
  readonly published: number;
  readonly protocol: string;
}

/**
 * The single host ports of all services.
 * @param onUnknown called for ports whose number only the engine chooses
 */
export function publishedPorts(
  document: JsonObject,
  onUnknown: (service: string, port: ServicePort) => void = () => undefined,
): PublishedPort[] {
  return Object.entries(recordOf(document["services"])).flatMap(([service, value]) =>
    listOf(recordOf(value)["ports"]).flatMap((entry): PublishedPort[] => {
      const port = readServicePort(entry);
      const { protocol } = port;
      const singles = spannedPorts(port);
      if (singles !== undefined && singles.every(({ published }) => published !== 0))
        return singles.map((single) => ({ service, protocol, ...single }));
      onUnknown(service, port);
      return [];
    }),
  );
}

/** Names that a generated manifest gives to a port, in order of preference. */
export function portNames({ service, target, protocol }: PublishedPort): string[] {
  const plain = service.replaceAll(/[^A-Za-z0-9_-]+/g, "-").replaceAll(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, "");
  const base = (plain || "port").slice(0, 48);
  return [base, `${base}-${target}`, `${base}-${target}-${protocol}`];
}

/** Number of host ports that it uses: the engine runs a process for each. */
export function countPorts({ published, target }: ServicePort): number {
  return Math.max(spanOf(published), spanOf(target));
}

/** The single ports, 0 for any free one; `undefined` unless each has its own host port. */
export function spannedPorts(port: ServicePort): { target: number; published: number }[] | undefined {
  const [target = 0, published = 0] = [port.target, port.published].map(
    (text) => Number.parseInt(text, 10) || 0,
  );
  if (spanOf(port.target) !== spanOf(port.published)) return undefined;
  return Array.from({ length: countPorts(port) }, (_, at) => ({
    target: target + at,
    published: published === 0 ? 0 : published + at,
  }));
}

function spanOf(range: string): number {
  const [first = 0, last = first] = range.split("-").map(Number);
  // Compose rejects what cannot be parsed.
  return Math.max(1, last - first + 1) || 1;
}
