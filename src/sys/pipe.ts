/** System calls about descriptors that Node lacks. */
import { readFileSync, readdirSync } from "node:fs";
import { Socket } from "node:net";
import { loadLibc } from "./libc.ts";
import { loadPipeEnds } from "./pipe-ends.mjs";

const oCloexec = 0o2000000;
const setDescriptorFlags = 2;
const closeOnExec = 1;

/** A pipe between this process and one that it starts. */
export interface Pipe {
  /** This process's end. */
  readonly stream: Socket;
  /** The other end: passed to the child process, then closed here. */
  readonly fd: number;
}

/** @returns a function that opens pipes for reading or writing here; throws as {@link loadPipeEnds} does */
export function loadPipes(): (use: "read" | "write") => Pipe {
  const openPipe = loadPipeEnds();
  return (use) => {
    const { readFd, writeFd } = openPipe();
    return use === "read"
      ? { stream: new Socket({ fd: readFd, readable: true, writable: false }), fd: writeFd }
      : { stream: new Socket({ fd: writeFd, readable: false, writable: true }), fd: readFd };
  };
}

/**
 * Makes inherited descriptors except 0, 1 and 2 close-on-exec, so that started programs do not get descriptors of the
 * process that started svc. Node sets the flag on its own descriptors only, and libuv's attempt at inherited ones stops
 * at the first gap in the numbers.
 */
export function retainInheritedDescriptors(): void {
  const fcntl = loadLibc().func("int fcntl(int fd, int command, int flags)");
  for (const name of readdirSync("/proc/self/fd")) {
    const fd = Number(name);
    if (fd > 2 && !isCloseOnExec(fd)) fcntl(fd, setDescriptorFlags, closeOnExec);
  }
}

function isCloseOnExec(fd: number): boolean {
  try {
    const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
    return flags === undefined || (Number.parseInt(flags, 8) & oCloexec) !== 0;
  } catch {
    // The descriptor of this directory listing is closed by now.
    return true;
  }
}
