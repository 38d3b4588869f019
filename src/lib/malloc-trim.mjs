/** malloc_trim(3): gives those pages back to the kernel which the C library keeps of what native code has freed. */
import { promisify } from "node:util";
import { loadKoffi } from "./koffi.mjs";

/**
 * About 0.2 ms for each MiB, on a thread of the pool: only who needs new memory meanwhile waits for it.
 * @returns {(() => Promise<unknown>) | undefined} Undefined with a C library that has no such call, as musl.
 */
export function loadMallocTrim() {
  try {
    const trim = loadKoffi().load(null).func("int malloc_trim(size_t padBytes)");
    const trimBeside = promisify(trim.async);
    return () => trimBeside(0);
  } catch {
    return undefined;
  }
}
