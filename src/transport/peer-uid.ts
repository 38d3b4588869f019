/**
 * Who is at the other end of a unix socket, from the kernel (SO_PEERCRED, unix(7)): node has no call for it. The uid is
 * the peer's when it connected (or, seen from a client, when the server began to listen) and outlives the process; the
 * pid beside it may long be another's and decides nothing.
 */
import type { Socket } from "node:net";
import { loadLibc } from "../lib/libc.ts";
import { descriptorOf } from "./descriptor.ts";

/**
 * The uid behind a connected *unix* socket, or its descriptor. On TCP the kernel answers with an unmapped uid, so do not ask there.
 * @throws Error when the kernel does not tell: the connection must then be closed (T 2)
 */
export type ReadPeerUid = (socket: Socket | number) => number;

const solSocket = 1;
const soPeercred = 17;
/** What the kernel shows for a uid that has no meaning here. */
const noUid = 2 ** 32 - 1;

/**
 * Loads the native call: about 2 ms and 8 MB, so only where a unix socket is served or verified.
 * @throws Error where there is no such call, such as outside of Linux
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
      throw new Error("the kernel told no peer credentials");
    return uidIn(ucred);
  };
}

/** @throws Error for a uid that names nobody */
export function uidIn([, uid = noUid]: Uint32Array): number {
  if (uid === noUid) throw new Error("the peer's uid has no meaning here");
  return uid;
}
