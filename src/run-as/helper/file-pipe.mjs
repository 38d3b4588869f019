/**
 * Moves bytes of files through a pipe by reference: the kernel records the pages of the file and copies them once, for
 * the reader of the pipe.
 */
import { closeSync, readSync } from "node:fs";
import { pipeCalls } from "./pipe-calls.mjs";

const closeOnExec = 0o2000000;
const nonBlocking = 0o4000;
const setPipeSize = 1031;
/** For splice(2): return instead of waiting for space. */
const spliceNonBlocking = 2;
/** For lseek(2). */
const seekSet = 0;
/** A quarter of a wide pipe, so that four fit, each after its header: pipes allocate whole pages. */
export const filePipeBytes = 240 << 10;

export class FilePipe {
  #calls;
  #readFd;
  #writeFd;

  /**
   * @param {Exclude<ReturnType<typeof pipeCalls>, undefined>} calls
   * @param {number} readFd
   * @param {number} writeFd
   */
  constructor(calls, readFd, writeFd) {
    this.#calls = calls;
    this.#readFd = readFd;
    this.#writeFd = writeFd;
  }

  /**
   * Moves a file's next bytes into the pipe, up to {@link filePipeBytes}. The pipe must be empty. Runs on another
   * thread, because it may read from disk.
   * @param {number} fd of a regular file
   * @param {number} position
   * @param {number} bytes
   * @returns {Promise<number>} bytes moved; 0 at the end of the file, or if the file system does not support it
   */
  take(fd, position, bytes) {
    const { lseek, splice } = this.#calls;
    if (lseek(fd, position, seekSet) !== position) return Promise.resolve(0);
    return new Promise((resolve) =>
      splice.async(fd, null, this.#writeFd, null, bytes, spliceNonBlocking, (_error, taken) =>
        resolve(Math.max(0, taken ?? 0)),
      ),
    );
  }

  /**
   * Moves bytes to another pipe, as many as fit.
   * @param {number} fd
   * @param {number} bytes
   * @returns {number} bytes moved
   */
  moveTo(fd, bytes) {
    return Math.max(0, this.#calls.splice(this.#readFd, null, fd, null, bytes, spliceNonBlocking));
  }

  /**
   * Reads bytes that were taken but not moved.
   * @param {number} bytes
   * @returns {Buffer}
   */
  read(bytes) {
    const buffer = Buffer.allocUnsafeSlow(bytes);
    for (let at = 0; at < bytes;) at += readSync(this.#readFd, buffer, at, bytes - at, null);
    return buffer;
  }

  [Symbol.dispose]() {
    closeSync(this.#readFd);
    closeSync(this.#writeFd);
  }
}

/** @returns {FilePipe | undefined} undefined without native calls, or with too many open descriptors */
export function openFilePipe() {
  const calls = pipeCalls();
  const fds = new Int32Array(2);
  if (calls === undefined || calls.pipe2(fds, closeOnExec | nonBlocking) !== 0) return undefined;
  const [readFd = -1, writeFd = -1] = fds;
  // Fails if the user's pipes use too much memory: the smaller pipe is slower, but works.
  calls.fcntl(writeFd, setPipeSize, filePipeBytes);
  return new FilePipe(calls, readFd, writeFd);
}
