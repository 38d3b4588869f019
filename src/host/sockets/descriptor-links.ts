/** Finds the socket of another process's descriptor from its link in `/proc/<pid>/fd`. */
import { readlinkSync } from "node:fs";
import { loadLibc } from "../../sys/libc.ts";

/**
 * @param dir a descriptor of the process's `/proc/<pid>/fd`, which still refers to that process if the pid is reused
 * @returns the inode of the socket; `undefined` if the descriptor is not a socket or is closed
 */
export type SocketAt = (dir: number, fd: string) => number | undefined;

type ReadLinkAt = (dir: number, path: string, target: Buffer, length: number) => number;

const prefix = Buffer.from("socket:[");
const maxLinkBytes = 64;

/** Uses a system call with one buffer, or Node's call, which takes over twice as long, if koffi cannot be loaded. */
export function createSocketAt(): SocketAt {
  try {
    return nativeSocketAt();
  } catch {
    return plainSocketAt;
  }
}

function nativeSocketAt(): SocketAt {
  const readLinkAt = loadLibc().func(
    "int64_t readlinkat(int, const char *, void *, size_t)",
  ) as unknown as ReadLinkAt;
  const target = Buffer.alloc(maxLinkBytes);
  return (dir, fd) => {
    const length = readLinkAt(dir, fd, target, maxLinkBytes);
    return length > 0 ? inodeIn(target, length) : undefined;
  };
}

export function plainSocketAt(dir: number, fd: string): number | undefined {
  try {
    const target = Buffer.from(readlinkSync(`/proc/self/fd/${dir}/${fd}`), "latin1");
    return inodeIn(target, target.length);
  } catch {
    return undefined;
  }
}

/** Parses `socket:[inode]` byte by byte; a regular expression would take as long as the system call. */
function inodeIn(target: Buffer, length: number): number | undefined {
  const end = length - 1;
  for (let at = 0; at < prefix.length; at += 1) if (target[at] !== prefix[at]) return undefined;
  let inode = 0;
  for (let at = prefix.length; at < end; at += 1) inode = inode * 10 + (target[at] ?? 0) - 48;
  return inode;
}
