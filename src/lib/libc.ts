/** The C library, for the few calls that node does not have. */
import { createRequire } from "node:module";
import type * as Koffi from "koffi";

/**
 * Loads it: about 10 ms and 8 MB, so only when a call is needed.
 * @throws Error outside of Linux, or where the native module cannot be loaded
 */
export function loadLibc(): Koffi.LibraryHandle {
  if (process.platform !== "linux") throw new Error(`no native calls on ${process.platform}`);
  const koffi = createRequire(import.meta.url)("koffi") as typeof Koffi;
  return koffi.load(null);
}
