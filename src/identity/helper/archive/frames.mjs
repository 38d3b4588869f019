/**
 * Independent zstd frames, made and opened side by side on the thread pool, in order. Each can be opened without the
 * others, so that one file of an archive costs its own frames alone.
 */
import { hash } from "node:crypto";
import { promisify } from "node:util";
import { constants, zstdCompress, zstdDecompress } from "node:zlib";
import { damaged } from "./tar-reader.mjs";

/** Bytes of tar in a frame. */
const frameBytes = 4 << 20;
/** Most of either side of a frame that is opened: incompressible bytes grow a little. */
export const maxFrameBytes = 8 << 20;
/** Frames under way at once. */
const maxUnderWay = 3;
/** Length and raw length, unsigned 32 bit little-endian, and the SHA-256 of the frame as it is stored. */
export const tableRowBytes = 40;

const compressAsync = promisify(zstdCompress);
const decompressAsync = promisify(zstdDecompress);

/** @param {Buffer} raw */
export function compressFrame(raw) {
  return compressAsync(raw, {
    // One call: with a smaller one the result is put together from many.
    chunkSize: raw.length + (raw.length >> 7) + 1024,
    params: { [constants.ZSTD_c_compressionLevel]: 3, [constants.ZSTD_c_checksumFlag]: 1 },
  });
}

/**
 * @param {Buffer} frame
 * @param {number} rawBytes What it must come to.
 * @throws RequestError `DAMAGED`
 */
export async function openFrame(frame, rawBytes) {
  if (rawBytes > maxFrameBytes) throw damaged("has a frame that is too large");
  const raw = await decompressAsync(frame, {
    chunkSize: Math.max(1024, rawBytes + 1),
    maxOutputLength: Math.max(1, rawBytes),
  }).catch(() => {
    throw damaged("has a frame that cannot be decompressed");
  });
  if (raw.length !== rawBytes) throw damaged("has a frame of another size than its table says");
  return raw;
}

/** @param {Uint8Array} bytes */
export function sha256(bytes) {
  return hash("sha256", bytes, "buffer");
}

/** Cuts a stream of bytes into frames. */
export class FrameWriter {
  #send;
  #buffer = Buffer.allocUnsafe(frameBytes);
  #length = 0;
  /** @type {Set<Promise<void>>} */
  #underWay = new Set();
  #last = Promise.resolve();
  /** @type {Buffer[]} */
  #rows = [];
  storedBytes = 0;
  rawBytes = 0;

  /** @param {(frame: Buffer) => Promise<void>} send */
  constructor(send) {
    this.#send = send;
  }

  /** @param {Buffer} bytes Lent until the promise resolves, which waits for room. */
  async write(bytes) {
    for (let from = 0; from < bytes.length;) {
      const copied = bytes.copy(this.#buffer, this.#length, from);
      from += copied;
      this.#length += copied;
      if (this.#length === frameBytes) await this.#cut();
    }
  }

  /** Resolves when all of it has been sent. */
  async end() {
    if (this.#length > 0) await this.#cut();
    await this.#last;
  }

  /** One row per frame. */
  table() {
    return Buffer.concat(this.#rows);
  }

  async #cut() {
    const raw = this.#buffer.subarray(0, this.#length);
    this.#buffer = Buffer.allocUnsafe(frameBytes);
    this.#length = 0;
    const before = this.#last;
    const work = compressFrame(raw).then(async (frame) => {
      const row = Buffer.alloc(tableRowBytes);
      row.writeUInt32LE(frame.length, 0);
      row.writeUInt32LE(raw.length, 4);
      sha256(frame).copy(row, 8);
      await before;
      this.#rows.push(row);
      this.storedBytes += frame.length;
      this.rawBytes += raw.length;
      await this.#send(frame);
    });
    this.#last = work;
    const counted = work.finally(() => this.#underWay.delete(counted));
    counted.catch(() => undefined);
    this.#underWay.add(counted);
    while (this.#underWay.size >= maxUnderWay) await Promise.race(this.#underWay);
  }
}
