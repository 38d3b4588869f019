/**
 * Files that a helper has opened with its user's rights and hands over, so that the daemon reads them without a process in
 * between. No path is resolved and nothing is opened here: it is the descriptor that the user got from the kernel, taken with
 * pidfd_getfd(2), which a user can only make another one of theirs. Files whose file system answers when somebody else likes
 * (FUSE, the network) stay with the helper: each wait for them would keep a thread that all of the daemon shares.
 */
import { close, closeSync, fstat, read } from "node:fs";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import type { PieceSource } from "../lib/file-pieces.ts";
import { loadLibc } from "../lib/libc.ts";

/** The same on all architectures: they are younger than the tables that differ. */
const sysPidfdOpen = 434;
const sysPidfdGetfd = 438;
/** Of open(2). */
const accessMode = 0o3;
const writeOnly = 0o1;
const direct = 0o40000;
const pathOnly = 0o10000000;
/** Kinds of file systems that wait for nothing but a disk of this host. */
const ownFileSystems = new Set(["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay"]);
/** Reads at a time. A disk that hangs takes no more of the pool's threads, of which there are four. */
const maxReading = 2;

type Syscall = (number: number, a: number, b: number, c: number) => number;

const readAt = promisify(read);

export class HandedFiles {
  #syscall: Syscall | undefined;
  #reading = 0;
  readonly #waiting: (() => void)[] = [];

  /**
   * @param pid A child that has not been reaped: nobody else can have its pid.
   * @param fd One of its descriptors.
   * @returns undefined when it is none to be read here
   */
  async take(pid: number, fd: number): Promise<HandedFile | undefined> {
    // In the same turn of the loop as the caller's look at the child.
    const own = this.#duplicate(pid, fd);
    if (own === undefined) return undefined;
    const isFit = await isReadableHere(own).catch(() => false);
    if (!isFit) closeSync(own);
    return isFit ? new HandedFile(own, (work) => this.#inTurn(work)) : undefined;
  }

  #duplicate(pid: number, fd: number): number | undefined {
    let pidfd = -1;
    try {
      this.#syscall ??= loadLibc().func("long syscall(long, long, long, long)") as unknown as Syscall;
      pidfd = this.#syscall(sysPidfdOpen, pid, 0, 0);
      const own = pidfd < 0 ? -1 : this.#syscall(sysPidfdGetfd, pidfd, fd, 0);
      return own < 0 ? undefined : own;
    } catch {
      // No native calls here.
      return undefined;
    } finally {
      if (pidfd >= 0) closeSync(pidfd);
    }
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#reading >= maxReading) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#reading += 1;
    try {
      return await work();
    } finally {
      // The turn goes straight to who waits for it.
      const next = this.#waiting.shift();
      if (next === undefined) this.#reading -= 1;
      else next();
    }
  }
}

/** A regular file, open for reading. */
export class HandedFile implements PieceSource, AsyncDisposable {
  readonly #fd: number;
  readonly #inTurn: <T>(work: () => Promise<T>) => Promise<T>;

  constructor(fd: number, inTurn: <T>(work: () => Promise<T>) => Promise<T>) {
    this.#fd = fd;
    this.#inTurn = inTurn;
  }

  read(buffer: Buffer, offset: number, length: number, position: number): Promise<{ bytesRead: number }> {
    return this.#inTurn(() => readAt(this.#fd, buffer, offset, length, position));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await promisify(close)(this.#fd);
  }
}

/** By what the kernel keeps of the descriptor itself; the file is asked only once its file system is known to answer. */
async function isReadableHere(fd: number): Promise<boolean> {
  const info = await readFile(`/proc/self/fdinfo/${fd}`, "latin1");
  const flags = Number.parseInt(/^flags:\s*(\d+)$/m.exec(info)?.[1] ?? "", 8);
  const mount = /^mnt_id:\s*(\d+)$/m.exec(info)?.[1];
  if (Number.isNaN(flags) || mount === undefined) return false;
  if ((flags & (pathOnly | direct)) !== 0 || (flags & accessMode) === writeOnly) return false;
  // One of a user's own namespace is not among them.
  const mounts = await readFile("/proc/self/mountinfo", "latin1");
  const line = mounts.split("\n").find((each) => each.startsWith(`${mount} `)) ?? "";
  const [fileSystem = ""] = (line.split(" - ")[1] ?? "").split(" ");
  return ownFileSystems.has(fileSystem) && (await promisify(fstat)(fd)).isFile();
}
