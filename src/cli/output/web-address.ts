/** The address of an app for a browser. */
import { isIP, isIPv6 } from "node:net";
import { schemeOf, webPortOf } from "../../lib/web-port.ts";
import type { App } from "../client/calls.ts";

/**
 * The address while the app runs; undefined if it has no port for a browser.
 * @param host name or address of the app's host
 */
export function urlAt(
  host: string,
  app: Pick<App, "state" | "ports">,
  addresses: readonly string[] = [],
): string | undefined {
  const port = webPortOf(app.ports);
  if (app.state !== "RUNNING" || port === undefined) return undefined;
  // A remote daemon chooses them: anything but an IP address is ignored.
  const [only] = addresses.filter((address) => isIP(address) !== 0 && !isEverywhere(address));
  const name = addresses.some(isEverywhere) || only === undefined ? host : only;
  return `${schemeOf(port)}://${isIPv6(name) ? `[${name}]` : name}:${port.port}`;
}

function isEverywhere(address: string): boolean {
  return ["0.0.0.0", "::", "127.0.0.1"].includes(address);
}
