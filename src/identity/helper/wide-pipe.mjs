/**
 * A pipe with room for much at once, for output that is read by the gigabyte. Node's own "pipe" is a pair of sockets, which
 * pass on 64 KiB at a time, each in memory of its own: that takes as long as what is done with the bytes.
 */
import { closeSync } from "node:fs";
import { Socket } from "node:net";
import { pipeCalls } from "./pipe-calls.mjs";

/** The most that Linux lets anybody have. */
const pipeBytes = 1 << 20;
const closeOnExec = 0o2000000;
const setPipeSize = 1031;

/** @typedef {(piece: Buffer) => Promise<void> | undefined} Take Pieces are lent until it returns, or its promise resolves. */

export class WidePipe {
  #readFd;
  /** To be handed down, and closed here then. */
  writeFd;
  /** @type {Socket | undefined} */
  #socket;

  /**
   * @param {number} readFd
   * @param {number} writeFd
   */
  constructor(readFd, writeFd) {
    this.#readFd = readFd;
    this.writeFd = writeFd;
  }

  /**
   * Resolves when all who could write have closed it.
   * @param {Take} take
   * @returns {Promise<void>}
   */
  forward(take) {
    /** @type {PromiseWithResolvers<void>} */
    const { promise, resolve, reject } = Promise.withResolvers();
    const buffer = Buffer.allocUnsafeSlow(pipeBytes);
    const fail = (/** @type {unknown} */ error) => {
      reject(error);
      socket.destroy();
    };
    const callback = (/** @type {number} */ length) => {
      try {
        const taken = take(buffer.subarray(0, length));
        if (taken === undefined) return true;
        taken.then(() => socket.resume(), fail);
      } catch (error) {
        fail(error);
      }
      return false;
    };
    const socket = new Socket({
      fd: this.#readFd,
      readable: true,
      writable: false,
      onread: { buffer, callback },
    });
    this.#socket = socket;
    socket.on("error", reject);
    socket.on("close", resolve);
    socket.resume();
    return promise;
  }

  /** What is not there yet is not read any more. */
  destroy() {
    if (this.#socket) this.#socket.destroy();
    else closeSync(this.#readFd);
  }
}

/** @returns {WidePipe | undefined} nothing where there are no native calls, or too many descriptors */
export function openWidePipe() {
  const calls = pipeCalls();
  const fds = new Int32Array(2);
  if (calls === undefined || calls.pipe2(fds, closeOnExec) !== 0) return undefined;
  const [readFd = -1, writeFd = -1] = fds;
  // Less, where the user has many: that is slower, and no more.
  calls.fcntl(writeFd, setPipeSize, pipeBytes);
  return new WidePipe(readFd, writeFd);
}
