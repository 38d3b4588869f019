/**
 * Signals by process descriptor (pidfd_open(2), pidfd_send_signal(2)). A descriptor always refers to the same process,
 * so a reused PID is never signaled.
 */
import { closeSync } from "node:fs";
import { loadLibc, nativeError } from "./libc.ts";

export interface ProcessHandle extends Disposable {
  /** @throws Error with `code` `ESRCH` if the process has exited */
  signal(number: number): void;
}

/** The same number on all architectures, because the call is newer than the tables that differ. */
const sysPidfdSendSignal = 424;
const sysPidfdOpen = 434;

type Syscall = (number: number, a: number, b: number, c: number, d: number) => number;

/**
 * Loads the native call. @returns a function that opens the process with a PID; it throws with `code` `ESRCH` if no
 * process has the PID
 */
export function createProcessOpener(): (pid: number) => ProcessHandle {
  const syscall: Syscall = loadLibc().func("long syscall(long, long, long, long, long)");
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
