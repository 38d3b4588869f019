/**
 * pipe(2), which Node lacks. Node's own "pipe" is a pair of sockets, which a program cannot open again as `/dev/stdout`
 * or `/dev/stderr`.
 */
import { loadKoffi } from "./koffi.mjs";

const closeOnExec = 0o2000000;

/** @typedef {() => { readFd: number, writeFd: number }} OpenPipe throws if the process has too many descriptors */

/**
 * Loads the native call, which costs about 2 ms and 1 MB of private memory.
 * @returns {OpenPipe}
 * @throws Error if the native module cannot be loaded
 */
export function loadPipeEnds() {
  const pipe2 = loadKoffi().load(null).func("int pipe2(_Out_ int *fds, int flags)");
  return () => {
    const fds = new Int32Array(2);
    if (pipe2(fds, closeOnExec) !== 0) throw new Error("cannot open a pipe: too many open files");
    const [readFd = -1, writeFd = -1] = fds;
    return { readFd, writeFd };
  };
}
