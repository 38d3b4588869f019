/** The C library, for the few calls that Node lacks. */
import { constants } from "node:os";
import type * as Koffi from "koffi";
import { loadKoffi } from "./koffi.mjs";

/**
 * Loads the library, which costs about 2 ms and 8 MB, so only when a call is needed.
 * @throws Error outside of Linux, or if the native module cannot be loaded
 */
export function loadLibc(): Koffi.LibraryHandle {
  if (process.platform !== "linux") throw new Error(`no native calls on ${process.platform}`);
  return loadKoffi().load(null);
}

/** An error for the native call that just failed, with the name of the errno as its `code`. */
export function nativeError(call: string): NodeJS.ErrnoException {
  const errno = loadKoffi().errno();
  const [code = `errno ${errno}`] =
    Object.entries(constants.errno).find(([, number]) => number === errno) ?? [];
  return Object.assign(new Error(`${call}: ${code}`), { code, errno: -errno, syscall: call });
}
