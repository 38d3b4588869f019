/**
 * Git hosts that root trusts without encryption (`[git] insecure_hosts`): their repositories may be fetched by http, and by https
 * with a certificate that cannot be verified, such as a self-signed one.
 */
import { isIPv6 } from "node:net";
import { SvcError } from "../../errors.ts";
import { hostName, splitHost } from "../../lib/host-name.ts";
import { isLoopback, type GitUrl } from "./git-url.ts";

/** Whether the list contains the URL's host, as `host` for all ports or as `host:port`. */
export function isInsecure({ transport, url }: GitUrl, insecureHosts: readonly string[]): boolean {
  if (transport !== "http" && transport !== "https") return false;
  const host = splitHost(new URL(url).host);
  const port = host?.port ?? (transport === "https" ? "443" : "80");
  return insecureHosts.some((text) => {
    const listed = isIPv6(text) ? { name: hostName(text), port: undefined } : splitHost(text);
    return listed !== undefined && listed.name === host?.name && [undefined, port].includes(listed.port);
  });
}

/** @throws SvcError `not_possible` for http, except to this host and to insecure hosts */
export function requireProtected(gitUrl: GitUrl, insecureHosts: readonly string[]): void {
  const { transport, url } = gitUrl;
  if (transport !== "http" || isLoopback(new URL(url).hostname) || isInsecure(gitUrl, insecureHosts)) return;
  throw new SvcError(
    "not_possible",
    `${url} uses http, which is not protected against changes; use https, or ${settingFor(url)}`,
  );
}

/** How root allows the host of a URL, for an error message. */
export function settingFor(url: string): string {
  const { host } = new URL(url);
  return `set insecure_hosts = [${JSON.stringify(host)}] under [git] in svc.toml, and restart svc`;
}
