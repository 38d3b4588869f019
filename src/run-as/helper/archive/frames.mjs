/**
 * Independent zstd frames, compressed and decompressed in parallel on the thread pool, in order. Each can be
 * decompressed on its own, so that reading one file of an archive costs only its own frames.
 */
import { hash, subtle } from "node:crypto";
import { promisify } from "node:util";
import { constants, createZstdCompress, zstdDecompress } from "node:zlib";
import { damaged } from "./tar-reader.mjs";

/** Bytes of tar in a frame. */
const frameBytes = 4 << 20;
const thoroughLevel = 3;
/** Takes less than half of the time. */
const fastLevel = 1;
/** Frames between two trials of both levels. */
const trialEvery = 16;
/** Fraction of a frame that the thorough level must save to be worth its time. For pictures it saves nothing. */
const worthwhile = 0.02;
/** Maximum size of a frame, compressed and decompressed: incompressible bytes grow a little. */
export const maxFrameBytes = 8 << 20;
/** Concurrent frames. */
const maxUnderWay = 3;
/** Length and raw length, unsigned 32 bit little-endian, and the SHA-256 of the stored frame. */
export const tableRowBytes = 40;

/** Incompressible bytes grow a little, and a buffer of this size is allocated separately, not from Node's shared pool. */
const spareBytes = 64 << 10;

const decompressAsync = promisify(zstdDecompress);

/**
 * Compresses on the thread pool.
 * @param {Buffer} raw must not change until the promise resolves
 * @param {number} [level]
 * @returns {Promise<Buffer<ArrayBuffer>>} in separate memory that is larger than the frame; see {@link freeFrame}
 */
export function compressFrame(raw, level = thoroughLevel) {
  const { promise, resolve, reject } = /** @type {PromiseWithResolvers<Buffer<ArrayBuffer>>} */ (
    Promise.withResolvers()
  );
  const stream = createZstdCompress({
    // With this flag and enough output space, zstd needs no copy of the input, and a third less time.
    flush: constants.ZSTD_e_end,
    chunkSize: raw.length + (raw.length >> 7) + spareBytes,
    params: { [constants.ZSTD_c_compressionLevel]: level, [constants.ZSTD_c_checksumFlag]: 1 },
  });
  /** @type {Buffer<ArrayBuffer>[]} */
  const pieces = [];
  stream.on("data", (piece) => pieces.push(piece));
  stream.on("error", reject);
  stream.write(raw, () => {
    // Not ended: that would write another, empty frame.
    stream.destroy();
    const [frame, ...rest] = pieces;
    if (frame !== undefined && rest.length === 0) resolve(frame);
    else reject(new Error("zstd had no room for a frame"));
  });
  return promise;
}

/**
 * Frees the memory of a frame: the garbage collector does not see how large it is.
 * @param {Buffer<ArrayBuffer>} frame from {@link compressFrame}
 */
export function freeFrame({ buffer }) {
  buffer.transfer(0);
}

/**
 * @param {Buffer} frame
 * @param {number} rawBytes expected size
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
  if (raw.length !== rawBytes) throw damaged("has a frame whose size differs from its table");
  return raw;
}

/** @param {Uint8Array} bytes */
export function sha256(bytes) {
  return hash("sha256", bytes, "buffer");
}

/** Compresses frames at the level that pays off for the current data, as the last trial has shown. */
class FrameCompressor {
  #level = thoroughLevel;
  #untilTrial = 0;

  /** @param {Buffer} raw must not change until the promise resolves */
  async compress(raw) {
    if (this.#untilTrial > 0) {
      this.#untilTrial--;
      return compressFrame(raw, this.#level);
    }
    this.#untilTrial = trialEvery - 1;
    const [thorough, fast] = await Promise.all([
      compressFrame(raw, thoroughLevel),
      compressFrame(raw, fastLevel),
    ]);
    this.#level = thorough.length < fast.length * (1 - worthwhile) ? thoroughLevel : fastLevel;
    freeFrame(fast);
    return thorough;
  }
}

/** Cuts a stream of bytes into frames. */
export class FrameWriter {
  #send;
  /** Unused buffers. @type {Buffer<ArrayBuffer>[]} */
  #spare = [];
  /** @type {Buffer<ArrayBuffer>} */
  #buffer = Buffer.allocUnsafeSlow(frameBytes);
  #length = 0;
  /** @type {Set<Promise<void>>} */
  #compressing = new Set();
  #last = Promise.resolve();
  #compressor = new FrameCompressor();
  /** @type {Buffer[]} */
  #rows = [];
  storedBytes = 0;
  rawBytes = 0;

  /** @param {(frame: Buffer, onWritten: () => void) => Promise<void>} send `onWritten`: the frame's memory is no longer used */
  constructor(send) {
    this.#send = send;
  }

  /** @param {Buffer} bytes only used until the call returns */
  write(bytes) {
    for (let from = 0; from < bytes.length;) {
      const copied = bytes.copy(this.#buffer, this.#length, from);
      from += copied;
      this.filled(copied);
    }
  }

  /**
   * Returns memory for some of the next bytes; see {@link filled}.
   * @param {number} bytes
   */
  space(bytes) {
    return this.#buffer.subarray(this.#length, this.#length + bytes);
  }

  /** @param {number} bytes bytes written to that memory */
  filled(bytes) {
    this.#length += bytes;
    if (this.#length === frameBytes) this.#cut();
  }

  /** A promise that must be awaited before much more is written, if any. */
  room() {
    return this.#compressing.size < maxUnderWay ? undefined : this.#wait();
  }

  /** Resolves when everything has been sent; nothing may be written afterwards. */
  async end() {
    if (this.#length > 0) this.#cut();
    await this.#last;
    for (const buffer of [this.#buffer, ...this.#spare]) freeFrame(buffer);
  }

  /** One row per frame. */
  table() {
    return Buffer.concat(this.#rows);
  }

  async #wait() {
    while (this.#compressing.size >= maxUnderWay) await Promise.race(this.#compressing);
  }

  #cut() {
    const work = this.#frame(this.#buffer, this.#length, this.#last);
    this.#buffer = this.#spare.pop() ?? Buffer.allocUnsafeSlow(frameBytes);
    this.#length = 0;
    this.#last = work;
    const counted = work.finally(() => this.#compressing.delete(counted));
    counted.catch(() => undefined);
    this.#compressing.add(counted);
  }

  /**
   * @param {Buffer<ArrayBuffer>} buffer
   * @param {number} rawBytes
   * @param {Promise<void>} before
   */
  async #frame(buffer, rawBytes, before) {
    const frame = await this.#compressor.compress(buffer.subarray(0, rawBytes));
    this.#spare.push(buffer);
    const row = Buffer.alloc(tableRowBytes);
    row.writeUInt32LE(frame.length, 0);
    row.writeUInt32LE(rawBytes, 4);
    // Also on the thread pool: this thread hashes content in the meantime.
    row.set(new Uint8Array(await subtle.digest("SHA-256", frame)), 8);
    await before;
    this.#rows.push(row);
    this.storedBytes += frame.length;
    this.rawBytes += rawBytes;
    await this.#send(frame, () => freeFrame(frame));
  }
}
