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
    throw new SvcError("host_denied", "the request's Host is not allowed; add it to [api] allowed_hosts");
  }

  /**
   * For both listeners; a request without `Origin` does not come from a page.
   * @throws SvcError `permission_denied`, reason `origin_denied`
   */
  checkOrigin(origin: string | undefined, host: string | undefined): void {
    if (origin === undefined) return;
    // Including the port: another port may be another user's page.
    if (host !== undefined && /^https?:\/\//.test(origin) && originHost(origin) === host.toLowerCase())
      return;
    throw new SvcError("origin_denied", "pages of other origins may not call this daemon");
  }
}

/** The name of a `Host` value without its port, in lower case; undefined if it is not valid. */
function hostName(host: string): string | undefined {
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?$/i.exec(host);
  return match?.[1]?.toLowerCase().replace(/\.$/, "");
}

function originHost(origin: string): string {
  return origin.slice(origin.indexOf("//") + 2).toLowerCase();
}

function isLoopback(name: string): boolean {
  return (
    name === "localhost" ||
    pageHostPattern.test(name) ||
    name === "[::1]" ||
    (isIPv4(name) && name.startsWith("127."))
  );
}
