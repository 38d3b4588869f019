/**
 * The client, host and scheme of a request behind reverse proxies, from `X-Forwarded-*` or `Forwarded` (RFC 7239). Both
 * count only from addresses in `[api] trusted_proxies`, because every client can send them.
 */
import { BlockList, isIP } from "node:net";

/** Where a connection comes from, known at accept. */
export type Origin =
  { readonly kind: "tcp"; readonly address: string } | { readonly kind: "peer"; readonly uid: number };

/** The address of a connection over TCP. */
export function addressOf(origin: Origin | undefined): string | undefined {
  return origin?.kind === "tcp" ? origin.address : undefined;
}

type RequestHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** Where a request comes from, and the address that its page has in the browser. */
export interface RequestSource {
  /** The client that a trusted proxy names, else the peer of the connection. */
  readonly origin: Origin;
  /** The `Host` of the request itself. */
  readonly host: string | undefined;
  /** The host that a trusted proxy received. */
  readonly forwardedHost?: string | undefined;
  /** The scheme that a trusted proxy was called with. */
  readonly scheme?: "http" | "https" | undefined;
  /** The address of a proxy whose headers do not count, because it is not trusted. */
  readonly untrustedProxy?: string | undefined;
}

/** One proxy's report; the last one in a header is the nearest proxy's. */
interface Report {
  readonly client?: string | undefined;
  readonly host?: string | undefined;
  readonly proto?: string | undefined;
}

export class TrustedProxies {
  readonly #trusted = new BlockList();

  /** @param ranges addresses, and ranges such as `10.0.0.0/8` */
  constructor(ranges: readonly string[]) {
    for (const range of ranges) {
      const [address = "", bits] = range.split("/", 2);
      const family = isIP(address) === 6 ? "ipv6" : "ipv4";
      if (bits === undefined) this.#trusted.addAddress(address, family);
      else this.#trusted.addSubnet(address, Number(bits), family);
    }
  }

  /** @param host the `Host` or `:authority` of the request */
  sourceOf(origin: Origin, headers: RequestHeaders, host: string | undefined): RequestSource {
    if (origin.kind !== "tcp" || !isForwarded(headers)) return { origin, host };
    if (!this.#trusts(origin.address)) return { origin, host, untrustedProxy: plainAddress(origin.address) };
    const reports = reportsIn(headers);
    const { address, hops } = this.#clientOf(
      origin.address,
      reports.map(({ client }) => client),
    );
    // The outermost trusted proxy knows the host and the scheme that the client used.
    const own = reports[Math.max(0, reports.length - Math.max(1, hops))] ?? {};
    return {
      origin: { kind: "tcp", address },
      host,
      forwardedHost: own.host,
      scheme: schemeOf(own.proto),
    };
  }

  /** Walks from the nearest proxy to the first address that is not a trusted proxy. */
  #clientOf(peer: string, clients: readonly (string | undefined)[]): { address: string; hops: number } {
    let [address, hops] = [peer, 0];
    for (const client of [...clients].reverse()) {
      if (!this.#trusts(address)) break;
      const next = addressIn(client);
      if (next === undefined) break;
      address = next;
      hops++;
    }
    return { address, hops };
  }

  #trusts(address: string): boolean {
    const plain = plainAddress(address);
    return this.#trusted.check(plain, isIP(plain) === 6 ? "ipv6" : "ipv4");
  }
}

function isForwarded(headers: RequestHeaders): boolean {
  return (
    headers["x-forwarded-for"] !== undefined ||
    headers["x-forwarded-host"] !== undefined ||
    headers["x-forwarded-proto"] !== undefined ||
    headers["forwarded"] !== undefined
  );
}

/**
 * `X-Forwarded-*` come first: most proxies set these, and pass a client's `Forwarded` on unchanged. The lists may differ in length,
 * because some proxies append to one header and overwrite another.
 */
function reportsIn(headers: RequestHeaders): Report[] {
  const lists = ["for", "host", "proto"].map((name) => listOf(headers[`x-forwarded-${name}`]));
  const [clients = [], hosts = [], protos = []] = lists;
  const length = Math.max(clients.length, hosts.length, protos.length);
  if (length === 0) return forwardedIn(textOf(headers["forwarded"]));
  const at = (list: readonly string[], fromEnd: number): string | undefined =>
    list[Math.max(0, list.length - fromEnd)];
  return Array.from({ length }, (_, index) => {
    const fromEnd = length - index;
    return {
      client: clients[clients.length - fromEnd],
      host: at(hosts, fromEnd),
      proto: at(protos, fromEnd),
    };
  });
}

/** One pair of a `Forwarded` element, and what follows it. */
const pairPattern = /[ \t]*([a-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s",;]+))[ \t]*(;|,|$)/giy;

/** The elements of a `Forwarded` header; none if it is not valid. */
function forwardedIn(text: string): Report[] {
  const reports: Report[] = [];
  let pairs: Record<string, string> = {};
  let end = 0;
  for (const { 0: whole, 1: name = "", 2: quoted, 3: token = "", 4: next, index } of text.matchAll(
    pairPattern,
  )) {
    pairs[name.toLowerCase()] = quoted?.replace(/\\(.)/g, "$1") ?? token;
    end = index + whole.length;
    if (next === ";") continue;
    reports.push({ client: pairs["for"], host: pairs["host"], proto: pairs["proto"] });
    pairs = {};
  }
  return end === text.length ? reports : [];
}

/** Only the entries of the nearest proxies are read, because a client can send thousands of others. */
const maxReports = 64;

function listOf(header: string | string[] | undefined): string[] {
  const text = textOf(header);
  return text === ""
    ? []
    : text
        .split(",")
        .slice(-maxReports)
        .map((entry) => entry.trim());
}

function textOf(header: string | string[] | undefined): string {
  return (Array.isArray(header) ? header.join(",") : (header ?? "")).trim();
}

/** An address with or without a port; undefined for names such as `unknown`. */
function addressIn(text: string | undefined): string | undefined {
  const [, bracketed, v4] = /^(?:\[([^\]]*)\](?::\d+)?|([0-9.]+)(?::\d+)?)$/.exec(text ?? "") ?? [];
  const address = plainAddress(bracketed ?? v4 ?? text ?? "");
  return isIP(address) === 0 ? undefined : address;
}

/** The address without a zone. An IPv4-mapped IPv6 address becomes the IPv4 address. */
function plainAddress(address: string): string {
  return address.replace(/%.*$/, "").replace(/^::ffff:(?=[0-9.]+$)/i, "");
}

function schemeOf(proto: string | undefined): RequestSource["scheme"] {
  const scheme = proto?.toLowerCase();
  if (scheme === "https" || scheme === "wss") return "https";
  return scheme === "http" || scheme === "ws" ? "http" : undefined;
}
