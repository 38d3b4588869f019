/**
 * Signals by process descriptor (pidfd_open(2), pidfd_send_signal(2)): a descriptor stays with its process, so that nobody
 * who got the pid in the meantime is hit.
 */
import { closeSync } from "node:fs";
import { loadLibc, nativeError } from "../lib/libc.ts";

export interface ProcessHandle extends Disposable {
  /** @throws Error with `code` `ESRCH` when the process has ended */
  signal(number: number): void;
}

/** The same on all architectures: they are younger than the tables that differ. */
const sysPidfdSendSignal = 424;
const sysPidfdOpen = 434;

type Syscall = (number: number, a: number, b: number, c: number, d: number) => number;

/** Loads the native call. @returns opens the process that has a pid now; throws with `code` `ESRCH` where none has */
export function createProcessOpener(): (pid: number) => ProcessHandle {
  const syscall = loadLibc().func("long syscall(long, long, long, long, long)") as unknown as Syscall;
  return (pid) => {
    const fd = syscall(sysPidfdOpen, pid, 0, 0, 0);
    if (fd < 0) throw nativeError("pidfd_open");
    return {
      signal: (number) => {
        if (syscall(sysPidfdSendSignal, fd, number, 0, 0) < 0) throw nativeError("pidfd_send_signal");
      },
      [Symbol.dispose]: () => closeSync(fd),
    };
  };
}
