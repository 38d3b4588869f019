/**
 * The peer of a unix socket, reported by the kernel (SO_PEERCRED, unix(7)); Node has no API for it. The uid
 * is the peer's at the time of the connect (for a client: of the server's listen). The pid may have been
 * reused and is ignored.
 */
import type { Socket, Server } from "node:net";
import { loadLibc } from "../../sys/libc.ts";

/**
 * The uid behind a connected *unix* socket, or its descriptor. Not for TCP, where the kernel reports an
 * unmapped uid.
 * @throws Error if the kernel does not report it; the connection must then be closed
 */
export type ReadPeerUid = (socket: Socket | number) => number;

const solSocket = 1;
const soPeercred = 17;
/** The kernel's value for a uid without a mapping. */
const noUid = 2 ** 32 - 1;

/**
 * Loads the native call: about 2 ms and 8 MB, so only if a unix socket is served or verified.
 * @throws Error if there is no such call, such as outside of Linux
 */
export function loadPeerUid(): ReadPeerUid {
  const getsockopt = loadLibc().func(
    "int getsockopt(int fd, int level, int name, _Out_ uint32_t *value, _Inout_ uint32_t *length)",
  );

  return (socket) => {
    // `struct ucred`: pid, uid, gid, 32 bits each.
    const ucred = new Uint32Array(3);
    const length = new Uint32Array([ucred.byteLength]);
    const fd = typeof socket === "number" ? socket : descriptorOf(socket);
    if (fd === undefined) throw new Error("the socket is closed");
    const result = getsockopt(fd, solSocket, soPeercred, ucred, length) as number;
    if (result !== 0 || length[0] !== ucred.byteLength)
      throw new Error("the kernel reported no peer credentials");
    return uidIn(ucred);
  };
}

/** @throws Error for a uid without a mapping */
export function uidIn([, uid = noUid]: Uint32Array): number {
  if (uid === noUid) throw new Error("the peer's uid is not mapped here");
  return uid;
}

/**
 * The descriptor behind a socket or a listener; undefined for a closed one. Node has no public API for it.
 */
export function descriptorOf(handled: Server | Socket): number | undefined {
  const { _handle: handle } = handled as { _handle?: { fd?: number } | null };
  const fd = handle?.fd;
  return fd === undefined || fd < 0 ? undefined : fd;
}
