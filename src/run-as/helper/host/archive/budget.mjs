/** Limits of unpacking: a small archive can contain more than any disk. */
import { RequestError } from "../../request-error.mjs";

/** Bytes that are allowed whatever the size of the archive. */
const freeBytes = 16 << 20;

/**
 * @typedef {object} Limits
 * @property {number} maxEntries
 * @property {number} maxBytes bytes unpacked
 * @property {number} maxRatio how many times larger than the archive its content may be
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
   * @param {number} length of an unpacked file
   * @throws RequestError `LIMIT`
   */
  takeBytes(length) {
    const { maxBytes } = this.#limits;
    this.bytes += length;
    if (this.bytes > maxBytes) throw new RequestError("LIMIT", `unpacks to more than ${maxBytes} bytes`);
  }

  /**
   * Excludes decompressed zeros from the ratio, because they become a hole.
   * @param {number} length
   */
  exemptZeros(length) {
    this.#passedBytes -= length;
  }

  /**
   * @param {number} length decompressed bytes, including names and padding
   * @throws RequestError `LIMIT`
   */
  passBytes(length) {
    const { maxRatio } = this.#limits;
    this.#passedBytes += length;
    if (this.#passedBytes > this.#mostBytes) {
      throw new RequestError(
        "LIMIT",
        `unpacks to more than ${maxRatio} times its size; if you trust it, set a higher max_ratio`,
      );
    }
  }
}
