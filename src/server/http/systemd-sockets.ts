/**
 * Sockets that systemd has bound for the daemon and keeps open, so that clients can connect while the daemon
 * restarts. Only getsockname(2) tells which address a socket is bound to; Node has no API for it.
 */
import { addressText } from "../../lib/tcp-address.ts";
import { loadLibc, nativeError } from "../../sys/libc.ts";

/** Address families of socket(2). */
const [unixFamily, ipv4Family, ipv6Family] = [1, 2, 10];
/**
 * `struct sockaddr_un`, the largest of the three: the family, and a path, terminated by zero if it is shorter
 * than the field.
 */
const [addressBytes, pathStart] = [110, 2];

/**
 * The descriptors by bound address: a path, or `host:port`.
 * @throws Error for a descriptor that is neither a unix socket with a path nor a TCP socket
 */
export function systemdSockets(fds: readonly number[]): Map<string, number> {
  return new Map(fds.map((fd) => [boundAddressOf(fd), fd]));
}

function boundAddressOf(fd: number): string {
  const getsockname = loadLibc().func(
    "int getsockname(int fd, _Out_ uint8_t *address, _Inout_ uint32_t *length)",
  );
  const address = Buffer.alloc(addressBytes);
  const length = new Uint32Array([addressBytes]);
  if ((getsockname(fd, address, length) as number) !== 0) throw nativeError("getsockname");
  const family = new Uint16Array(address.buffer, address.byteOffset, 1)[0];
  // `struct sockaddr_in` and `sockaddr_in6` of ip(7) and ipv6(7).
  const port = address.readUInt16BE(2);
  if (family === ipv4Family) return addressText({ host: address.subarray(4, 8).join("."), port });
  if (family === ipv6Family) return addressText({ host: ipv6Text(address.subarray(8, 24)), port });
  const path = address.toString("utf8", pathStart, length[0]).replace(/\0.*$/s, "");
  if (family !== unixFamily || path === "")
    throw new Error(
      `descriptor ${fd} cannot be used: it is neither a unix socket with a path nor a TCP socket`,
    );
  return path;
}

function ipv6Text(bytes: Buffer): string {
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16)).join(":");
  // A URL normalizes addresses to their shortest form (RFC 5952).
  return new URL(`http://[${groups}]`).hostname.slice(1, -1);
}
