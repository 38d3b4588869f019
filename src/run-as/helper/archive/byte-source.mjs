/** A stream of bytes that is read in exact amounts. */
import { damaged } from "./tar-reader.mjs";

export class ByteSource {
  #chunks;
  /** @type {Buffer} */
  #rest = Buffer.alloc(0);

  /** @param {AsyncIterable<Buffer>} chunks */
  constructor(chunks) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  /**
   * @param {number} length
   * @returns {Promise<Buffer>}
   * @throws RequestError `DAMAGED` if the stream ends before
   */
  async take(length) {
    const parts = [this.#rest];
    let buffered = this.#rest.length;
    while (buffered < length) {
      const next = await this.#chunks.next();
      if (next.done) throw damaged("is truncated");
      parts.push(next.value);
      buffered += next.value.length;
    }
    const all = parts.length === 1 ? this.#rest : Buffer.concat(parts);
    this.#rest = all.subarray(length);
    return all.subarray(0, length);
  }
}
