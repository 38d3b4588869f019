/**
 * Messages between the daemon and a helper: a JSON header and raw bytes, each with its length in front
 * (unsigned 32 bit, big endian). Bytes need no encoding so, and both sides can bound what they hold in memory.
 */

/** Most bytes of a header; a command line with its environment fits. */
export const maxHeaderBytes = 4 << 20;
/** Most raw bytes of one message. */
export const maxDataBytes = 16 << 20;

const prefixBytes = 8;
const noData = Buffer.alloc(0);

/**
 * @typedef {{ id?: number, [key: string]: unknown }} Header
 * @typedef {{ header: Header, data: Buffer }} Frame
 */

/**
 * @param {Header} header
 * @param {Uint8Array} [data]
 * @returns {Buffer}
 * @throws RangeError when a part is larger than its bound.
 */
export function encodeFrame(header, data = noData) {
  const json = Buffer.from(JSON.stringify(header));
  if (json.length > maxHeaderBytes)
    throw new RangeError(`message of ${json.length} bytes is above ${maxHeaderBytes}`);
  if (data.length > maxDataBytes)
    throw new RangeError(`data of ${data.length} bytes is above ${maxDataBytes}`);
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32BE(json.length, 0);
  prefix.writeUInt32BE(data.length, 4);
  return Buffer.concat([prefix, json, data]);
}

/** Puts frames together from the pieces in which they arrive. */
export class FrameDecoder {
  /** @type {Buffer[]} */
  #pieces = [];
  #heldBytes = 0;
  #isTooMuch;

  /** @param {(header: string) => boolean} [isTooMuch] whether a header holds more than any does, looked at before it is parsed */
  constructor(isTooMuch = () => false) {
    this.#isTooMuch = isTooMuch;
  }

  /**
   * @param {Buffer} piece
   * @returns {Frame[]} The frames that it completed.
   * @throws Error when the sender breaks a bound or sends no object: the connection is of no use then.
   */
  push(piece) {
    this.#pieces.push(piece);
    this.#heldBytes += piece.length;
    /** @type {Frame[]} */
    const frames = [];
    for (;;) {
      const first = this.#front(prefixBytes);
      if (first === undefined) return frames;
      const headerBytes = first.readUInt32BE(0);
      const dataBytes = first.readUInt32BE(4);
      if (headerBytes > maxHeaderBytes || dataBytes > maxDataBytes) {
        throw new Error(`message of ${headerBytes} + ${dataBytes} bytes is too large`);
      }
      const size = prefixBytes + headerBytes + dataBytes;
      const whole = this.#front(size);
      if (whole === undefined) return frames;
      const json = whole.toString("utf8", prefixBytes, prefixBytes + headerBytes);
      if (this.#isTooMuch(json)) throw new Error("message holds too much");
      /** @type {unknown} */
      const header = JSON.parse(json);
      if (typeof header !== "object" || header === null) throw new Error("message is no object");
      frames.push({
        header: /** @type {Header} */ (header),
        data: whole.subarray(prefixBytes + headerBytes, size),
      });
      this.#drop(size);
    }
  }

  /**
   * A buffer that starts with at least `size` held bytes; pieces are joined only once enough of them are there.
   * @param {number} size
   */
  #front(size) {
    if (this.#heldBytes < size) return undefined;
    let [front = noData] = this.#pieces;
    if (front.length < size) {
      front = Buffer.concat(this.#pieces);
      this.#pieces = [front];
    }
    return front;
  }

  /** @param {number} size */
  #drop(size) {
    const [front = noData, ...rest] = this.#pieces;
    this.#pieces = front.length > size ? [front.subarray(size), ...rest] : rest;
    this.#heldBytes -= size;
  }
}
