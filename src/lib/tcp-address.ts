/** Explains why a TCP address cannot be bound, and what to do (`[api] listen`). */

/** Lower ports are for root, unless the host is configured otherwise (ip_unprivileged_port_start of ip-sysctl.rst). */
const firstOpenPort = 1024;

interface TcpAddress {
  readonly host: string;
  /** 0 to 65,535. */
  readonly port: number;
}

/** The address as in a URL: `[::1]:8420`. */
export function addressText({ host, port }: TcpAddress): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** @param code error code of the system, such as `EACCES` @returns a sentence without its full stop */
export function listenFailure(address: TcpAddress, code: string): string {
  return `cannot listen on ${addressText(address)} (${code}): ${advice(address, code)}`;
}

function advice({ host, port }: TcpAddress, code: string): string {
  switch (code) {
    case "EACCES":
      return port < firstOpenPort
        ? `ports below ${firstOpenPort} need root; set [api] listen to a higher port, such as 8420`
        : "permission denied; set [api] listen to another address";
    case "EADDRINUSE":
      return `another program listens there; find it with: svc listening ${port}, stop it, or set [api] listen to another port`;
    case "EADDRNOTAVAIL":
      return "this host does not have that address; set [api] listen to an address of this host, such as 127.0.0.1";
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return `no address of ${host} is known; set [api] listen to an address, such as 127.0.0.1`;
    default:
      return "set [api] listen to another address";
  }
}

/** The loopback addresses of both IP versions: browsers try both for a `*.localhost` name. */

interface TcpAddress {
  readonly host: string;
  readonly port: number;
}

/** The loopback address that a listener on `address` does not occupy; undefined if there is none. */
export function otherLoopbackOf(address: TcpAddress | undefined): TcpAddress | undefined {
  if (address === undefined) return undefined;
  const { host, port } = address;
  if (host === "127.0.0.1" || host === "localhost" || host === "0.0.0.0") return { host: "::1", port };
  return host === "::1" ? { host: "127.0.0.1", port } : undefined;
}
