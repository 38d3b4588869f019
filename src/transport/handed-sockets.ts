/** Sockets that somebody else has bound for the daemon and keeps open, as systemd does: who connects while no daemon runs waits in them. */
import { loadLibc, nativeError } from "../lib/libc.ts";

const unixFamily = 1;
/** `struct sockaddr_un`: the family, and a path that ends with a zero where there is room. */
const [addressBytes, pathStart] = [110, 2];

/**
 * By the paths that they are bound to.
 * @throws Error for a descriptor that is no unix socket with a path
 */
export function handedSockets(fds: readonly number[]): Map<string, number> {
  return new Map(fds.map((fd) => [boundPathOf(fd), fd]));
}

function boundPathOf(fd: number): string {
  const getsockname = loadLibc().func(
    "int getsockname(int fd, _Out_ uint8_t *address, _Inout_ uint32_t *length)",
  );
  const address = Buffer.alloc(addressBytes);
  const length = new Uint32Array([addressBytes]);
  if ((getsockname(fd, address, length) as number) !== 0) throw nativeError("getsockname");
  const path = address.toString("utf8", pathStart, length[0]).replace(/\0.*$/s, "");
  const family = new Uint16Array(address.buffer, address.byteOffset, 1)[0];
  if (family !== unixFamily || path === "")
    throw new Error(`descriptor ${fd} is no unix socket that has a path: only those can be handed over`);
  return path;
}
