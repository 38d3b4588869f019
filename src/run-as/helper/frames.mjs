/**
 * Messages between the daemon and a helper: a JSON header and raw bytes, each prefixed with its length (unsigned 32
 * bit, big endian). Bytes need no encoding, and both sides can limit their memory.
 */

/** Maximum bytes of a header; a command line with its environment fits. */
export const maxHeaderBytes = 4 << 20;
/** Maximum raw bytes of one message. */
export const maxDataBytes = 16 << 20;

const prefixBytes = 8;
/** Data up to this size is copied behind its header, which is cheaper than another part of a write. */
const joinedBytes = 4096;
const noData = Buffer.alloc(0);

/**
 * @typedef {{ id?: number, [key: string]: unknown }} Header
 * @typedef {{ header: Header, data: Buffer }} Frame
 */

/**
 * Returns the parts of a message in order.
 * @param {Header} header
 * @param {Uint8Array} [data]
 * @returns {Uint8Array[]}
 * @throws RangeError if a part exceeds its limit
 */
export function encodeFrame(header, data = noData) {
  const json = JSON.stringify(header);
  const jsonBytes = Buffer.byteLength(json);
  if (jsonBytes > maxHeaderBytes)
    throw new RangeError(`message of ${jsonBytes} bytes is above ${maxHeaderBytes}`);
  if (data.length > maxDataBytes)
    throw new RangeError(`data of ${data.length} bytes is above ${maxDataBytes}`);
  const isJoined = data.length <= joinedBytes;
  const front = Buffer.allocUnsafe(prefixBytes + jsonBytes + (isJoined ? data.length : 0));
  front.writeUInt32BE(jsonBytes, 0);
  front.writeUInt32BE(data.length, 4);
  front.write(json, prefixBytes);
  if (!isJoined) return [front, data];
  front.set(data, prefixBytes + jsonBytes);
  return [front];
}

/**
 * Writes a message, with one system call if there is space.
 * @param {import("node:stream").Writable} out
 * @param {Header} header
 * @param {Uint8Array} [data] must not change afterwards
 * @param {() => void} [onWritten] called once the kernel has copied everything, or never will
 * @returns {boolean} whether there is space for more
 * @throws RangeError if a part exceeds its limit
 */
export function writeFrame(out, header, data, onWritten) {
  const [front = noData, rest] = encodeFrame(header, data);
  if (rest === undefined) return out.write(front, onWritten);
  out.cork();
  out.write(front);
  const hasRoom = out.write(rest, onWritten);
  out.uncork();
  return hasRoom;
}

/**
 * Assembles frames from received pieces. The bytes of a stream (`chunk`) are passed on as they arrive, one frame per
 * piece, because nobody needs them as a whole.
 */
export class FrameDecoder {
  /** @type {Buffer[]} */
  #pieces = [];
  #heldBytes = 0;
  /** The frame whose data is still missing. @type {{ header: Header, missingBytes: number } | undefined} */
  #begun;
  #isTooMuch;
  #isLent;

  /**
   * @param {object} [options]
   * @param {(header: string) => boolean} [options.isTooMuch] whether a header has more structure than any valid one;
   *   called before it is parsed
   * @param {boolean} [options.isLent] whether pieces are only valid until their last frame is taken: stored bytes are
   *   copied, and data is only valid until the next piece
   */
  constructor({ isTooMuch = () => false, isLent = false } = {}) {
    this.#isTooMuch = isTooMuch;
    this.#isLent = isLent;
  }

  /**
   * Yields the frames completed by the piece. Each is decoded only when it is taken; take all of them before the next
   * piece.
   * @param {Buffer} piece
   * @returns {Generator<Frame, void>}
   * @throws Error if the sender exceeds a limit or sends a header that is not an object; the connection is unusable
   *   afterwards
   */
  *push(piece) {
    this.#pieces.push(piece);
    this.#heldBytes += piece.length;
    for (;;) {
      this.#begun ??= this.#begin();
      const data = this.#begun && this.#dataOf(this.#begun);
      if (!this.#begun || !data) {
        const last = this.#pieces.at(-1);
        if (this.#isLent && last) this.#pieces.splice(-1, 1, Buffer.from(last));
        return;
      }
      const { header, missingBytes } = this.#begun;
      this.#begun =
        missingBytes === data.length ? undefined : { header, missingBytes: missingBytes - data.length };
      yield { header, data };
    }
  }

  #begin() {
    const prefix = this.#joinFirstBytes(prefixBytes);
    if (prefix === undefined) return undefined;
    const headerBytes = prefix.readUInt32BE(0);
    const dataBytes = prefix.readUInt32BE(4);
    if (headerBytes > maxHeaderBytes || dataBytes > maxDataBytes) {
      throw new Error(`message of ${headerBytes} + ${dataBytes} bytes is too large`);
    }
    const front = this.#joinFirstBytes(prefixBytes + headerBytes);
    if (front === undefined) return undefined;
    const json = front.toString("utf8", prefixBytes, prefixBytes + headerBytes);
    if (this.#isTooMuch(json)) throw new Error("message holds too much");
    /** @type {unknown} */
    const header = JSON.parse(json);
    if (typeof header !== "object" || header === null) throw new Error("message is not an object");
    this.#drop(prefixBytes + headerBytes);
    return { header: /** @type {Header} */ (header), missingBytes: dataBytes };
  }

  /**
   * @param {{ header: Header, missingBytes: number }} frame
   * @returns {Buffer | undefined} the received part of a chunk; other data only as a whole
   */
  #dataOf({ header, missingBytes }) {
    if (missingBytes === 0) return noData;
    const isChunk = header["chunk"] === true;
    const [first] = this.#pieces;
    const front = isChunk ? first : this.#joinFirstBytes(missingBytes);
    if (front === undefined) return undefined;
    const data = front.subarray(0, missingBytes);
    this.#drop(data.length);
    return data;
  }

  /**
   * Returns a buffer that starts with at least `size` received bytes. Pieces are joined only once there are enough.
   * @param {number} size
   */
  #joinFirstBytes(size) {
    if (this.#heldBytes < size) return undefined;
    let [front = noData] = this.#pieces;
    if (front.length < size) {
      front = Buffer.concat(this.#pieces);
      this.#pieces = [front];
    }
    return front;
  }

  /** @param {number} size at most the length of the first piece */
  #drop(size) {
    const [front = noData, ...rest] = this.#pieces;
    this.#pieces = front.length > size ? [front.subarray(size), ...rest] : rest;
    this.#heldBytes -= size;
  }
}
