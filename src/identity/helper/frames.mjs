/**
 * Messages between the daemon and a helper: a JSON header and raw bytes, each with its length in front
 * (unsigned 32 bit, big endian). Bytes need no encoding so, and both sides can bound what they hold in memory.
 */

/** Most bytes of a header; a command line with its environment fits. */
export const maxHeaderBytes = 4 << 20;
/** Most raw bytes of one message. */
export const maxDataBytes = 16 << 20;

const prefixBytes = 8;
/** Data up to here is copied behind its header, which costs less than another part of a write. */
const joinedBytes = 4096;
const noData = Buffer.alloc(0);

/**
 * @typedef {{ id?: number, [key: string]: unknown }} Header
 * @typedef {{ header: Header, data: Buffer }} Frame
 */

/**
 * What is written for a message, in order.
 * @param {Header} header
 * @param {Uint8Array} [data]
 * @returns {Uint8Array[]}
 * @throws RangeError when a part is larger than its bound.
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
 * Writes the front of a message whose data follows by another way.
 * @param {import("node:stream").Writable} out
 * @param {Header} header
 * @param {number} dataBytes
 */
export function writeFront(out, header, dataBytes) {
  const json = Buffer.from(JSON.stringify(header));
  const front = Buffer.allocUnsafe(prefixBytes);
  front.writeUInt32BE(json.length, 0);
  front.writeUInt32BE(dataBytes, 4);
  out.write(Buffer.concat([front, json]));
}

/**
 * Writes a message, in one call of the kernel where there is room.
 * @param {import("node:stream").Writable} out
 * @param {Header} header
 * @param {Uint8Array} [data] Not to be changed afterwards.
 * @param {() => void} [onWritten] Called once the kernel has it all, or never will.
 * @returns {boolean} Whether there is room for more.
 * @throws RangeError when a part is larger than its bound.
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
 * Puts frames together from the pieces in which they arrive. The bytes of a stream (`chunk`) are handed on as they come, a
 * frame for each piece of them: nobody needs them in one.
 */
export class FrameDecoder {
  /** @type {Buffer[]} */
  #pieces = [];
  #heldBytes = 0;
  /** Of the frame whose data has still to come. @type {{ header: Header, missingBytes: number } | undefined} */
  #begun;
  #isTooMuch;
  #isLent;

  /**
   * @param {object} [options]
   * @param {(header: string) => boolean} [options.isTooMuch] whether a header holds more than any does, looked at before it is parsed
   * @param {boolean} [options.isLent] Whether pieces are lent until `push` returns: what is kept is copied, and data is lent until
   *   the next piece.
   */
  constructor({ isTooMuch = () => false, isLent = false } = {}) {
    this.#isTooMuch = isTooMuch;
    this.#isLent = isLent;
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
      this.#begun ??= this.#begin();
      const data = this.#begun && this.#dataOf(this.#begun);
      if (!this.#begun || !data) {
        const last = this.#pieces.at(-1);
        if (this.#isLent && last) this.#pieces.splice(-1, 1, Buffer.from(last));
        return frames;
      }
      const { header, missingBytes } = this.#begun;
      this.#begun =
        missingBytes === data.length ? undefined : { header, missingBytes: missingBytes - data.length };
      frames.push({ header, data });
    }
  }

  #begin() {
    const prefix = this.#front(prefixBytes);
    if (prefix === undefined) return undefined;
    const headerBytes = prefix.readUInt32BE(0);
    const dataBytes = prefix.readUInt32BE(4);
    if (headerBytes > maxHeaderBytes || dataBytes > maxDataBytes) {
      throw new Error(`message of ${headerBytes} + ${dataBytes} bytes is too large`);
    }
    const front = this.#front(prefixBytes + headerBytes);
    if (front === undefined) return undefined;
    const json = front.toString("utf8", prefixBytes, prefixBytes + headerBytes);
    if (this.#isTooMuch(json)) throw new Error("message holds too much");
    /** @type {unknown} */
    const header = JSON.parse(json);
    if (typeof header !== "object" || header === null) throw new Error("message is no object");
    this.#drop(prefixBytes + headerBytes);
    return { header: /** @type {Header} */ (header), missingBytes: dataBytes };
  }

  /**
   * @param {{ header: Header, missingBytes: number }} frame
   * @returns {Buffer | undefined} What there is of a chunk; all of other data, or nothing yet.
   */
  #dataOf({ header, missingBytes }) {
    if (missingBytes === 0) return noData;
    const isChunk = header["chunk"] === true;
    const [first] = this.#pieces;
    const front = isChunk ? first : this.#front(missingBytes);
    if (front === undefined) return undefined;
    const data = front.subarray(0, missingBytes);
    this.#drop(data.length);
    return data;
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

  /** @param {number} size At most what the first piece has. */
  #drop(size) {
    const [front = noData, ...rest] = this.#pieces;
    this.#pieces = front.length > size ? [front.subarray(size), ...rest] : rest;
    this.#heldBytes -= size;
  }
}
