/** The address of an app for a browser. */
import { isIP, isIPv6 } from "node:net";
import type { App } from "../client/calls.ts";

type Port = App["ports"][number];

const webPort = /^(https?|web|ui|www)/i;
/** Names of ports that speak another protocol than HTTP. */
const otherPort =
  /^(ssh|sftp|ftp|db|database|postgres|mysql|mariadb|redis|mongo|mqtt|amqp|smtp|imap|ldap|dns)/i;

/** The first TCP port named for HTTP, else the first that is not named for another protocol. */
export function webPortOf(ports: readonly Port[]): Port | undefined {
  const tcp = ports.filter(({ protocol }) => protocol === "tcp");
  return tcp.find(({ name }) => webPort.test(name)) ?? tcp.find(({ name }) => !otherPort.test(name));
}

/**
 * The address while the app runs; undefined if it has no port for a browser.
 * @param host the name of the app's machine
 */
export function urlAt(
  host: string,
  app: Pick<App, "state" | "ports">,
  addresses: readonly string[] = [],
): string | undefined {
  const port = webPortOf(app.ports);
  if (app.state !== "RUNNING" || port === undefined) return undefined;
  const scheme = /^https/i.test(port.name) ? "https" : "http";
  // A remote daemon chooses them: anything but an IP address is ignored.
  const [only] = addresses.filter((address) => isIP(address) !== 0 && !isEverywhere(address));
  const name = addresses.some(isEverywhere) || only === undefined ? host : only;
  return `${scheme}://${isIPv6(name) ? `[${name}]` : name}:${port.port}`;
}

function isEverywhere(address: string): boolean {
  return ["0.0.0.0", "::", "127.0.0.1"].includes(address);
}
