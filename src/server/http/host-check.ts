/** Checks the host and origin of requests, against DNS rebinding and cross-site requests. */
import { randomBytes } from "node:crypto";
import { isIPv4 } from "node:net";
import { SvcError } from "../../errors.ts";

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
const maxShownHost = 253;

export class HostCheck {
  readonly #allowed: ReadonlySet<string>;

  /** @param allowedHosts names besides loopback names, without port */
  constructor(allowedHosts: readonly string[]) {
    this.#allowed = new Set(allowedHosts.map((name) => name.toLowerCase()));
  }

  /** For TCP. @throws SvcError `permission_denied`, reason `host_denied` */
  checkHost(host: string | undefined): void {
    const name = host === undefined ? undefined : hostName(host);
    if (name !== undefined && (isLoopback(name) || this.#allowed.has(name))) return;
    const shownName = name === undefined || name.length > maxShownHost ? "" : ` "${name}"`;
    throw new SvcError(
      "host_denied",
      `the header Host${shownName} is not allowed; add the name to [api] allowed_hosts in the configuration`,
    );
  }

  /**
   * For both listeners; a request without `Origin` does not come from a page.
   * @throws SvcError `permission_denied`, reason `origin_denied`
   */
  checkOrigin(origin: string | undefined, host: string | undefined): void {
    if (origin === undefined) return;
    // Including the port: another port may be another user's page.
    if (host !== undefined && isSameHost(origin, host.toLowerCase())) return;
    throw new SvcError(
      "origin_denied",
      "the header Origin differs from Host, and pages of other origins may not call this daemon; a reverse proxy must pass Host unchanged, with its port",
    );
  }
}

/** The name of a `Host` value without its port, in lower case; undefined if it is not valid. */
function hostName(host: string): string | undefined {
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?$/i.exec(host);
  return match?.[1]?.toLowerCase().replace(/\.$/, "");
}

/** Browsers leave out the default port of an origin, and some proxies add it to `Host`. */
function isSameHost(origin: string, host: string): boolean {
  const [, scheme, name] = /^(https?):\/\/(.*)$/.exec(origin.toLowerCase()) ?? [];
  if (scheme === undefined || name === undefined) return false;
  return name === host || `${name}:${scheme === "https" ? 443 : 80}` === host;
}

function isLoopback(name: string): boolean {
  return (
    name === "localhost" ||
    pageHostPattern.test(name) ||
    name === "[::1]" ||
    (isIPv4(name) && name.startsWith("127."))
  );
}
