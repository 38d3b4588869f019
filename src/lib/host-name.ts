/** Host names as they are compared: in lower case, without the final dot, and IPv6 addresses in their shortest form. */
import { isIPv6 } from "node:net";

export interface HostAndPort {
  /** IPv6 addresses are in brackets. */
  readonly name: string;
  readonly port: string | undefined;
}

/** Parses `name`, `name:port`, `[IPv6]` or `[IPv6]:port`; undefined if it is not valid. An empty port counts as none. */
export function splitHost(text: string): HostAndPort | undefined {
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{0,5}))?$/i.exec(text);
  if (match === null) return undefined;
  const [, written = "", port = ""] = match;
  const name = written.startsWith("[")
    ? bracketed(written.slice(1, -1))
    : written.toLowerCase().replace(/\.$/, "");
  if (name === undefined || name === "") return undefined;
  return { name, port: port === "" ? undefined : port };
}

/** The name of a `Host` value without its port. A bare IPv6 address gets brackets. */
export function hostName(text: string): string | undefined {
  return isIPv6(text) ? bracketed(text) : splitHost(text)?.name;
}

function bracketed(address: string): string | undefined {
  const url = `http://[${address}]`;
  return isIPv6(address) && URL.canParse(url) ? new URL(url).hostname : undefined;
}
