/** The ports that services of a compose file publish: `[ADDRESS:][[HOST]:]INSIDE[/PROTOCOL]`, or the same as an object. */
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import { resolveAddresses, resolvePorts } from "../../packages/settings.ts";
import { defaultAddress, type PublishOptions } from "../published-ports.ts";
import type { RunnableApp } from "../runtime.ts";
import { isSet, listOf, recordOf, textOf } from "./compose-values.ts";

export interface ServicePort {
  /** Of the host; empty: the engine's choice, which is all of them. */
  readonly address: string;
  /** A number, a range, or empty for any free one. */
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
  // An address in brackets has colons of its own.
  const [, bracketed, rest = ""] = /^(?:\[([^\]]*)\]:)?(.*)$/.exec(plain) ?? [];
  const parts = rest.split(":");
  return {
    address: bracketed ?? parts.slice(0, -2).join(":"),
    published: parts.at(-2) ?? "",
    target: parts.at(-1) ?? "",
    protocol,
  };
}

/** The document with an address for each port that names none: what the app's manifest says of that port, else its owner's default. */
export function withAddresses(document: JsonObject, app: RunnableApp, options: PublishOptions): JsonObject {
  const fallback = defaultAddress(app, options);
  const named = resolveAddresses(app.manifest, app.settings);
  const chosen = new Map(
    resolvePorts(app.manifest, app.settings).map(({ name, port, protocol }) => [
      `${port}/${protocol}`,
      named.get(name),
    ]),
  );
  const addressed = (port: JsonValue): JsonValue => {
    const { address, published, target, protocol } = readServicePort(port);
    const wanted = chosen.get(`${published}/${protocol}`) ?? fallback;
    if (address !== "" || wanted === undefined) return port;
    // In the short form, as the first generation of compose knows addresses in that alone.
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

/** How many ports of the host it takes: each has a process of the engine's. */
export function countPorts({ published, target }: ServicePort): number {
  return Math.max(spanOf(published), spanOf(target));
}

/** Each one by itself, 0 for any free one; `undefined` where not each has one of the host for its own. */
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
  // What cannot be read is no port, which compose says.
  return Math.max(1, last - first + 1) || 1;
}
