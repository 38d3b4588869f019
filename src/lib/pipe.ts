/** Calls about descriptors that node does not have. */
import { readFileSync, readdirSync } from "node:fs";
import { Socket } from "node:net";
import { loadLibc } from "./libc.ts";

const oCloexec = 0o2000000;
const setDescriptorFlags = 2;
const closeOnExec = 1;

/** A pipe between this process and one that it starts. */
export interface Pipe {
  /** This process's end. */
  readonly stream: Socket;
  /** The other one: to be handed down, and closed here then. */
  readonly fd: number;
}

/**
 * Answers what makes pipes of pipe(2), to read here or to write: node's own "pipe" is a pair of sockets, which cannot be
 * opened again as `/dev/stderr`, as scripts do.
 * @returns a function that throws when the process has too many descriptors
 */
export function loadPipes(): (use: "read" | "write") => Pipe {
  const pipe2 = loadLibc().func("int pipe2(_Out_ int *fds, int flags)");
  return (use) => {
    const fds = new Int32Array(2);
    if ((pipe2(fds, oCloexec) as number) !== 0) throw new Error("no pipe can be made: too many open files");
    const [readFd = -1, writeFd = -1] = fds;
    return use === "read"
      ? { stream: new Socket({ fd: readFd, readable: true, writable: false }), fd: writeFd }
      : { stream: new Socket({ fd: writeFd, readable: false, writable: true }), fd: readFd };
  };
}

/**
 * Makes what this process has inherited beside 0, 1 and 2 close-on-exec: nothing of whoever started it is for the programs
 * that it starts. Node does so with its own, and libuv's attempt at those that were inherited stops at the first gap.
 */
export function keepInheritedDescriptors(): void {
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
    // The descriptor of the very listing is gone by now.
    return true;
  }
}
