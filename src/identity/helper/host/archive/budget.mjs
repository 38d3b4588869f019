/** What an archive may cost: a small one can hold more than any disk. */
import { RequestError } from "../../request-error.mjs";

/** Bytes that need not be in any proportion to the archive. */
const freeBytes = 16 << 20;

/**
 * @typedef {object} Limits
 * @property {number} maxEntries
 * @property {number} maxBytes Of what comes out of it.
 * @property {number} maxRatio How many times larger than the archive that may be.
 */

export class Budget {
  #limits;
  #mostBytes;
  #passedBytes = 0;
  entries = 0;
  bytes = 0;

  /**
   * @param {Limits} limits
   * @param {number} archiveBytes
   */
  constructor(limits, archiveBytes) {
    this.#limits = limits;
    this.#mostBytes = Math.max(freeBytes, archiveBytes * limits.maxRatio);
  }

  /** @throws RequestError `LIMIT` */
  takeEntry() {
    const { maxEntries } = this.#limits;
    if (++this.entries > maxEntries) throw new RequestError("LIMIT", `has more than ${maxEntries} entries`);
  }

  /**
   * @param {number} length Of a file that comes out.
   * @throws RequestError `LIMIT`
   */
  takeBytes(length) {
    const { maxBytes } = this.#limits;
    this.bytes += length;
    if (this.bytes > maxBytes) throw new RequestError("LIMIT", `comes to more than ${maxBytes} bytes`);
  }

  /**
   * @param {number} length Of what is decompressed, names and padding included.
   * @throws RequestError `LIMIT`
   */
  passBytes(length) {
    const { maxRatio } = this.#limits;
    this.#passedBytes += length;
    if (this.#passedBytes > this.#mostBytes) {
      throw new RequestError("LIMIT", `comes to more than ${maxRatio} times its size`);
    }
  }
}
