/** Which hosts and origins a request may name (T 18, D10): against DNS rebinding and pages of other sites. */
import { isIPv4 } from "node:net";
import { SvcError } from "../errors.ts";

export class HostCheck {
  readonly #allowed: ReadonlySet<string>;

  /** @param allowedHosts names beside the loopback ones, without port */
  constructor(allowedHosts: readonly string[]) {
    this.#allowed = new Set(allowedHosts.map((name) => name.toLowerCase()));
  }

  /** For TCP. @throws SvcError `permission_denied`, reason `host_denied` */
  checkHost(host: string | undefined): void {
    const name = host === undefined ? undefined : hostName(host);
    if (name !== undefined && (isLoopback(name) || this.#allowed.has(name))) return;
    throw new SvcError(
      "host_denied",
      "the request's Host is not one of this daemon's; add it to [api] allowed_hosts",
    );
  }

  /** For both listeners; a request without `Origin` comes from no page. @throws SvcError `permission_denied`, reason `origin_denied` */
  checkOrigin(origin: string | undefined, host: string | undefined): void {
    if (origin === undefined) return;
    // Port and all: another port of this machine is another user's page.
    if (host !== undefined && /^https?:\/\//.test(origin) && originHost(origin) === host.toLowerCase())
      return;
    throw new SvcError("origin_denied", "pages of other origins may not call this daemon");
  }
}

/** The name of a `Host` value without its port, in lower case; `undefined` for what is none. */
function hostName(host: string): string | undefined {
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?$/i.exec(host);
  return match?.[1]?.toLowerCase().replace(/\.$/, "");
}

function originHost(origin: string): string {
  return origin.slice(origin.indexOf("//") + 2).toLowerCase();
}

function isLoopback(name: string): boolean {
  return name === "localhost" || name === "[::1]" || (isIPv4(name) && name.startsWith("127."));
}
