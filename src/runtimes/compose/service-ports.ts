/** Parses the published ports of services: `[ADDRESS:][[HOST]:]INSIDE[/PROTOCOL]`, or the long form. */
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import { resolveAddresses, resolvePorts } from "../../packages/settings/settings.ts";
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

/** Sets the address of ports without one: the one that the app's manifest gives this port, else the daemon's. */
export function withAddresses(
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
  const addressed = (port: JsonValue): JsonValue => {
    const { address, published, target, protocol } = readServicePort(port);
    const wanted = chosen.get(`${published}/${protocol}`) ?? publishAddress;
    if (address !== "") return port;
    // Compose v1 supports addresses only in the short form.
    return `${wanted.includes(":") ? `[${wanted}]` : wanted}:${published}:${target}/${protocol}`;
  };
  const services = mapValues(recordOf(document["services"]), (value): JsonValue => {
    const service = recordOf(value);
    if (!isSet(service["ports"])) return value;
    return { ...service, ports: listOf(service["ports"]).map(addressed) };
  });
  return { ...document, services };
}

/** The ports of all services. */
export function documentPorts(document: JsonObject): ServicePort[] {
  return Object.values(recordOf(document["services"])).flatMap((service) =>
    listOf(recordOf(service)["ports"]).map(readServicePort),
  );
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
