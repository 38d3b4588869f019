/**
 * A pipe with a large buffer, for output of gigabytes. Node's own "pipe" is a pair of sockets, which transfers 64 KiB
 * at a time into newly allocated memory: that takes as long as processing the bytes.
 */
import { closeSync } from "node:fs";
import { Socket } from "node:net";
import { loadKoffi } from "../../sys/koffi.mjs";
import { loadPipeEnds } from "../../sys/pipe-ends.mjs";

/** The default maximum on Linux. */
const pipeBytes = 1 << 20;
const setPipeSize = 1031;

/**
 * @typedef {(piece: Buffer) => Promise<void> | undefined} Take Pieces are only valid until it returns, or until its
 *   promise resolves.
 */

export class WidePipe {
  #readFd;
  /** Passed to the child process, then closed here. */
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
   * Resolves when all writers have closed the pipe.
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

  /** Stops reading; data that has not arrived yet is lost. */
  destroy() {
    if (this.#socket) this.#socket.destroy();
    else closeSync(this.#readFd);
  }
}

/** @type {{ openPipe: import("../../sys/pipe-ends.mjs").OpenPipe, fcntl: (...args: number[]) => number } | undefined} */
let calls;

/** @returns {WidePipe | undefined} undefined without native calls, or with too many open descriptors */
export function openWidePipe() {
  try {
    calls ??= { openPipe: loadPipeEnds(), fcntl: loadKoffi().load(null).func("int fcntl(int, int, int)") };
    const { readFd, writeFd } = calls.openPipe();
    // Fails if the user's pipes use too much memory: the smaller pipe is slower, but works.
    calls.fcntl(writeFd, setPipeSize, pipeBytes);
    return new WidePipe(readFd, writeFd);
  } catch {
    return undefined;
  }
}
