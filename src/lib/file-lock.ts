/** A lock between processes that the kernel takes back when its holder ends. */
import { constants } from "node:os";
import { loadLibc, nativeError } from "./libc.ts";

const lockExclusive = 2;
const lockNonBlocking = 4;

/**
 * Locks what is open under a descriptor, until that is closed.
 * @returns false where another process has it
 * @throws Error with the `code` of the system where it can be locked by nobody
 */
export function tryLock(fd: number): boolean {
  const flock = loadLibc().func("int flock(int fd, int operation)");
  if (flock(fd, lockExclusive | lockNonBlocking) === 0) return true;
  const error = nativeError("flock");
  if (error.errno === -constants.errno.EWOULDBLOCK) return false;
  throw error;
}
