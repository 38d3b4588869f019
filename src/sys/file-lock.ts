/** A lock between processes, which the kernel releases when its holder exits. */
import { constants } from "node:os";
import { loadLibc, nativeError } from "./libc.ts";

const lockExclusive = 2;
const lockNonBlocking = 4;

/**
 * Locks the file behind a descriptor until the descriptor is closed.
 * @returns false if another process holds the lock
 * @throws Error with the `code` of the system if the file cannot be locked
 */
export function tryLock(fd: number): boolean {
  const flock = loadLibc().func("int flock(int fd, int operation)");
  if (flock(fd, lockExclusive | lockNonBlocking) === 0) return true;
  const error = nativeError("flock");
  if (error.errno === -constants.errno.EWOULDBLOCK) return false;
  throw error;
}
