/** The C library, for the few calls that node does not have. */
import { createRequire } from "node:module";
import type koffi from "koffi";

/**
 * Loads it: about 10 ms and 8 MB, so only when a call is needed.
 * @throws Error outside of Linux, or where the native module cannot be loaded
 */
export function loadLibc(): koffi.LibraryHandle {
  if (process.platform !== "linux") throw new Error(`no native calls on ${process.platform}`);
  return (createRequire(import.meta.url)("koffi") as typeof koffi).load(null);
}
