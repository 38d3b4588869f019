/**
 * Bytes of files on their way through a pipe, by reference: the kernel notes which of its pages they are, and copies them once,
 * for whoever reads the pipe.
 */
import { closeSync, readSync } from "node:fs";
import { pipeCalls } from "./pipe-calls.mjs";

const closeOnExec = 0o2000000;
const nonBlocking = 0o4000;
const setPipeSize = 1031;
/** Of splice(2): rather nothing than wait for room. */
const spliceNonBlocking = 2;
/** Of lseek(2). */
const seekSet = 0;
/** What a pipe between processes has room for four times, each behind its header: it counts in pages. */
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
   * Takes a file's next bytes, up to {@link filePipeBytes}, once all taken before are gone. Not on this thread: the disk may be
   * asked for them.
   * @param {number} fd Of a regular file.
   * @param {number} position
   * @param {number} bytes
   * @returns {Promise<number>} How many; 0 at its end, or where the file system cannot do it.
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
   * Hands what was taken to another pipe, as far as that has room.
   * @param {number} fd
   * @param {number} bytes
   * @returns {number} How many went there.
   */
  moveTo(fd, bytes) {
    return Math.max(0, this.#calls.splice(this.#readFd, null, fd, null, bytes, spliceNonBlocking));
  }

  /**
   * What was taken and not moved.
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

/** @returns {FilePipe | undefined} nothing where there are no native calls, or too many descriptors */
export function openFilePipe() {
  const calls = pipeCalls();
  const fds = new Int32Array(2);
  if (calls === undefined || calls.pipe2(fds, closeOnExec | nonBlocking) !== 0) return undefined;
  const [readFd = -1, writeFd = -1] = fds;
  // Less, where the user has many: that is slower, and no more.
  calls.fcntl(writeFd, setPipeSize, filePipeBytes);
  return new FilePipe(calls, readFd, writeFd);
}
