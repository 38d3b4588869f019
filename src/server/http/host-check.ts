/** Checks the host and origin of requests, against DNS rebinding and cross-site requests. */
import { randomBytes } from "node:crypto";
import { isIPv4 } from "node:net";
import { SvcError } from "../../errors.ts";
import { hostName, splitHost } from "../../lib/host-name.ts";
import type { RequestSource } from "./request-source.ts";

/** Browsers resolve `*.localhost` to loopback (RFC 6761, section 6.3). */
const pageHostPattern = /^[0-9a-f]{32}\.localhost$/;

/**
 * Host name for links to the page. Another user may have held the port before the daemon and left a service worker or cached
 * scripts in a browser for every origin known then, so each daemon start takes an origin that nobody could know.
 */
export function createPageHost(): string {
  return `${randomBytes(16).toString("hex")}.localhost`;
}

/** DNS names have at most 253 characters. */
const maxShown = 253;

export class HostCheck {
  readonly #allowed: ReadonlySet<string>;

  /** @param allowedHosts names besides loopback names, without port */
  constructor(allowedHosts: readonly string[]) {
    this.#allowed = new Set(allowedHosts.map((name) => hostName(name) ?? name));
  }

  /**
   * Checks the host on TCP, and the origin of a page on both listeners. A forwarded host is checked in addition to the
   * request's own, because a page could set `X-Forwarded-Host` if the proxy passes headers on.
   * @param page the header `Origin`; a request without one does not come from a page
   * @throws SvcError `permission_denied`, reason `host_denied` or `origin_denied`
   */
  check(source: RequestSource, page: string | undefined): void {
    const { host, forwardedHost } = source;
    if (source.origin.kind === "tcp") {
      this.#checkHost("Host", host);
      if (forwardedHost !== undefined) this.#checkHost("X-Forwarded-Host", forwardedHost);
    }
    if (page !== undefined) checkOrigin(page, source);
  }

  #checkHost(header: string, host: string | undefined): void {
    const name = host === undefined ? undefined : splitHost(host)?.name;
    if (name !== undefined && (isLoopback(name) || this.#allowed.has(name))) return;
    const isNamed = name !== undefined && name.length <= maxShown;
    const value = host === undefined || host === "" ? "" : ` ${shown(host)}`;
    const entry = isNamed ? name.replace(/^\[|\]$/g, "") : "svc.example.org";
    throw new SvcError(
      "host_denied",
      `the header ${header}${value} is not ${name === undefined ? "a host name" : "allowed"}; ` +
        `set allowed_hosts = [${JSON.stringify(entry)}] under [api] in svc.toml, and restart svc`,
    );
  }
}

function checkOrigin(page: string, { host, forwardedHost, scheme, untrustedProxy }: RequestSource): void {
  const received = forwardedHost ?? host;
  const isSame = received !== undefined && isSameHost(page, received);
  if (isSame && scheme === "https" && page.toLowerCase().startsWith("http:")) {
    throw new SvcError(
      "origin_denied",
      `the header Origin ${shown(page)} is not https, but X-Forwarded-Proto is; open the page with https`,
    );
  }
  // Including the port: another port may be another user's page.
  if (isSame) return;
  const header = forwardedHost === undefined ? "Host" : "X-Forwarded-Host";
  const fix =
    untrustedProxy === undefined
      ? "a reverse proxy must pass Host unchanged, with its port"
      : `the reverse proxy must pass Host unchanged, with its port, or set trusted_proxies = [${JSON.stringify(untrustedProxy)}] ` +
        "under [api] in svc.toml, and restart svc";
  throw new SvcError(
    "origin_denied",
    `the header Origin ${shown(page)} differs from ${header} ${shown(received ?? "")}, and pages of other origins may not ` +
      `call this daemon; ${fix}`,
  );
}

/** In quotes, without control characters, and not too long. */
function shown(value: string): string {
  return JSON.stringify(value.length > maxShown ? `${value.slice(0, maxShown)}…` : value);
}

/** Browsers leave out the default port of an origin, and some proxies add it to `Host`. */
function isSameHost(origin: string, host: string): boolean {
  const [, scheme, authority] = /^(https?):\/\/(.*)$/i.exec(origin) ?? [];
  if (scheme === undefined || authority === undefined) return false;
  const defaultPort = scheme.toLowerCase() === "https" ? "443" : "80";
  const [page, received] = [splitHost(authority), splitHost(host)];
  if (page === undefined || received === undefined) return false;
  return page.name === received.name && (page.port ?? defaultPort) === (received.port ?? defaultPort);
}

function isLoopback(name: string): boolean {
  return (
    name === "localhost" ||
    pageHostPattern.test(name) ||
    name === "[::1]" ||
    (isIPv4(name) && name.startsWith("127."))
  );
}
