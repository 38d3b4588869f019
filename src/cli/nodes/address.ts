/** Addresses of remote daemons: `ssh://[user@]host[:port][/socket]`, `https://host[:port]` or `unix:///socket`. */
import { UsageError } from "../output/failure.ts";

export type NodeAddress =
  | {
      readonly kind: "ssh";
      readonly user: string | undefined;
      readonly host: string;
      readonly port: number | undefined;
      /** The daemon's socket on that host; undefined: where its `svc` finds it. */
      readonly socketPath: string | undefined;
    }
  | {
      readonly kind: "https" | "http";
      readonly host: string;
      readonly port: number;
      /** The authority of requests: host and port. */
      readonly authority: string;
    }
  | { readonly kind: "unix"; readonly socketPath: string };

const forms = "ssh://[user@]host[:port], https://host[:port] or unix:///path";

/**
 * Rejects names that ssh, the remote shell or a `ProxyCommand` could interpret as an option
 * (CVE-2017-1000117) or a command (CVE-2023-51385).
 */
const hostName = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,252}$/;
const ipv6 = /^\[[0-9a-f:.]{2,45}\]$/i;
const userName = /^[A-Za-z0-9_][A-Za-z0-9._+@-]{0,127}$/;
const socketName = /^\/[A-Za-z0-9._/@+-]{1,106}$/;

/** @throws UsageError that names the invalid part, but nothing that may be a password */
export function parseAddress(text: string): NodeAddress {
  const parts = /^(ssh|https?|unix):\/\/(?:([^@/]*)@)?([^/]*)(\/.*)?$/s.exec(text);
  if (parts === null) throw notAnAddress(text);
  const [, kind, user, hostAndPort = "", path = ""] = parts;
  if (user?.includes(":") === true) {
    throw new UsageError(
      "an address must not contain a password: use keys with ssh, a token file or a credential helper with https",
    );
  }
  if (kind === "unix") {
    if (user !== undefined || hostAndPort !== "") throw new UsageError("a socket's address is unix:///path");
    return { kind, socketPath: checked(path, /^\/[^\0]{1,106}$/, "the socket's path") };
  }
  const { host, port } = parseHostAndPort(hostAndPort);
  if (kind === "ssh") {
    return {
      kind,
      user: user === undefined ? undefined : checked(user, userName, "the user"),
      host: host.replace(/^\[|\]$/g, ""),
      port,
      socketPath: path === "" || path === "/" ? undefined : checked(path, socketName, "the socket's path"),
    };
  }
  if (user !== undefined)
    throw new UsageError(`an ${kind} address must not contain a user: the token identifies the user`);
  if (path !== "" && path !== "/") throw new UsageError(`an ${kind} address must not contain a path`);
  if (kind === "http" && !isLoopback(host)) {
    throw new UsageError(`http would send the token to ${host} unencrypted: use https or ssh`);
  }
  const isTls = kind === "https";
  return {
    kind: isTls ? "https" : "http",
    host: host.replace(/^\[|\]$/g, ""),
    port: port ?? (isTls ? 443 : 8420),
    authority: port === undefined ? host : `${host}:${port}`,
  };
}

/** The arguments of ssh for a person: `-p 2222 ada@attic`. */
export function sshTarget(
  { user, host, port }: Extract<NodeAddress, { kind: "ssh" }>,
  options: readonly string[] = [],
): string {
  const target = user === undefined ? host : `${user}@${host}`;
  return [...(port === undefined ? [] : ["-p", String(port)]), ...options, target].join(" ");
}

/** People type `user@host`, as ssh does. Other text may contain a password, and is not repeated. */
function notAnAddress(text: string): UsageError {
  const [, user, host = ""] = /^(?:([^@:/]+)@)?([^@:/]+)$/.exec(text) ?? [];
  if (!hostName.test(host) || (user !== undefined && !userName.test(user)))
    return new UsageError(`this is not an address of a daemon: use ${forms}`);
  return new UsageError(`"${text}" is not an address of a daemon; did you mean ssh://${text}? Use ${forms}`);
}

function parseHostAndPort(hostAndPort: string): { host: string; port: number | undefined } {
  const [, host = "", digits] = /^(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?$/.exec(hostAndPort) ?? [];
  if (!ipv6.test(host)) checked(host, hostName, "the host");
  const port = digits === undefined ? undefined : Number(digits);
  if (port !== undefined && (port < 1 || port > 65_535)) {
    throw new UsageError(`the port ${digits} must be 1 to 65535`);
  }
  return { host, port };
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

function checked(text: string, pattern: RegExp, what: string): string {
  if (!pattern.test(text))
    throw new UsageError(`${what} ${JSON.stringify(text)} in the address is not valid; use ${forms}`);
  return text;
}
