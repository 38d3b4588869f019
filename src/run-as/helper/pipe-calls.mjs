/** System calls about pipes that Node lacks. */
import { loadKoffi } from "../../sys/koffi.mjs";

/**
 * @typedef {object} PipeCalls
 * @property {(fds: Int32Array, flags: number) => number} pipe2
 * @property {(fd: number, request: number, argument: number) => number} fcntl
 * @property {(fd: number, offset: number, whence: number) => number} lseek
 * @property {Splice & { async: (...args: [...Parameters<Splice>, (error: unknown, result?: number) => void]) => void }} splice
 */
/** @typedef {(from: number, fromOffset: null, to: number, toOffset: null, bytes: number, flags: number) => number} Splice */

/** @type {PipeCalls | "none" | undefined} */
let loaded;

/**
 * Loads the calls on first use, which costs about 2 ms and 8 MB.
 * @returns {PipeCalls | undefined} undefined if they cannot be loaded
 */
export function pipeCalls() {
  loaded ??= load();
  return loaded === "none" ? undefined : loaded;
}

/** @returns {PipeCalls | "none"} */
function load() {
  try {
    const libc = loadKoffi().load(null);
    /** @type {PipeCalls["pipe2"]} */
    const pipe2 = libc.func("int pipe2(_Out_ int *, int)");
    /** @type {PipeCalls["fcntl"]} */
    const fcntl = libc.func("int fcntl(int, int, int)");
    /** @type {PipeCalls["lseek"]} */
    const lseek = libc.func("int64_t lseek(int, int64_t, int)");
    const splice = /** @type {PipeCalls["splice"]} */ (
      /** @type {unknown} */ (libc.func("int64_t splice(int, void *, int, void *, size_t, uint32_t)"))
    );
    return { pipe2, fcntl, lseek, splice };
  } catch {
    return "none";
  }
}
