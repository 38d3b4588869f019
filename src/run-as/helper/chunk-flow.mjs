/**
 * Flow control of a byte stream in the shared connection. A sender may have at most one window of unacknowledged bytes;
 * a receiver acknowledges what it has consumed. So a slow reader delays only its own stream.
 */

/** Maximum of unacknowledged bytes. */
export const windowBytes = 1 << 20;
/** Maximum bytes of one chunk. */
export const maxChunkBytes = 256 << 10;
/** Consumed bytes that are acknowledged together. Small enough that the window always has space for a chunk. */
const acknowledgedBytes = 256 << 10;

/** Small received chunks are joined up to this size: a million chunks of one byte would use a hundred times their bytes. */
const joinedBytes = 4 << 10;

/** The sending half. */
export class ChunkOutbox {
  #sendChunk;
  #signal;
  #unacknowledgedBytes = 0;
  /** @type {PromiseWithResolvers<void> | undefined} */
  #room;

  /**
   * @param {(chunk: Uint8Array, onWritten?: () => void) => void} sendChunk
   * @param {AbortSignal} signal ends waiting
   */
  constructor(sendChunk, signal) {
    this.#sendChunk = sendChunk;
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#room?.reject(signal.reason), { once: true });
  }

  /**
   * Sends bytes. Resolves when all are sent, which may wait for space in the window. One call at a time.
   * @param {Uint8Array} bytes must not change before `onWritten`
   * @param {() => void} [onWritten] called once the kernel has copied them; may never be called
   */
  async send(bytes, onWritten) {
    for (let start = 0; start < bytes.length; start += maxChunkBytes) {
      const chunk = bytes.subarray(start, start + maxChunkBytes);
      await this.#waitForSpace(chunk.length);
      this.#sendChunk(chunk, start + chunk.length === bytes.length ? onWritten : undefined);
    }
  }

  /**
   * Waits for space in the window, then counts the bytes as sent. One call at a time.
   * @param {number} bytes of one chunk
   */
  async #waitForSpace(bytes) {
    while (this.#unacknowledgedBytes + bytes > windowBytes) {
      this.#signal.throwIfAborted();
      this.#room = Promise.withResolvers();
      await this.#room.promise;
    }
    this.#signal.throwIfAborted();
    this.#unacknowledgedBytes += bytes;
  }

  /**
   * @param {number} bytes
   * @throws Error if the receiver acknowledges more than was sent
   */
  acknowledged(bytes) {
    if (!(bytes > 0 && bytes <= this.#unacknowledgedBytes))
      throw new Error("acknowledges more than was sent");
    this.#unacknowledgedBytes -= bytes;
    this.#room?.resolve();
  }
}

/**
 * The receiving half. Can be iterated once.
 * @implements {AsyncIterable<Buffer>}
 */
export class ChunkInbox {
  #acknowledge;
  #signal;
  /** @type {Buffer[]} */
  #chunks = [];
  #heldBytes = 0;
  #consumedBytes = 0;
  #ended = false;
  /** @type {PromiseWithResolvers<void> | undefined} */
  #arrival;

  /**
   * @param {(bytes: number) => void} acknowledge
   * @param {AbortSignal} signal ends waiting
   */
  constructor(acknowledge, signal) {
    this.#acknowledge = acknowledge;
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#arrival?.reject(signal.reason), { once: true });
  }

  /**
   * @param {Buffer} chunk
   * @throws Error if the sender exceeds the window
   */
  push(chunk) {
    if (chunk.length === 0) return;
    this.#heldBytes += chunk.length;
    if (this.#heldBytes > windowBytes) throw new Error("more bytes under way than the window allows");
    const last = this.#chunks.at(-1);
    if (last !== undefined && last.length + chunk.length <= joinedBytes)
      this.#chunks.splice(-1, 1, Buffer.concat([last, chunk]));
    else this.#chunks.push(chunk);
    this.#arrival?.resolve();
  }

  end() {
    this.#ended = true;
    this.#arrival?.resolve();
  }

  async *[Symbol.asyncIterator]() {
    for await (const [chunk] of this.#takeChunks(1)) if (chunk) yield chunk;
  }

  /** Yields all chunks that have arrived since the last batch. */
  batches() {
    return this.#takeChunks(Infinity);
  }

  /** @param {number} most */
  async *#takeChunks(most) {
    for (;;) {
      this.#signal.throwIfAborted();
      const chunks = this.#chunks.splice(0, most);
      if (chunks.length > 0) {
        // The consumer may have reused their memory by then.
        const bytes = chunks.reduce((sum, { length }) => sum + length, 0);
        yield chunks;
        this.#heldBytes -= bytes;
        this.#consumedBytes += bytes;
        if (this.#consumedBytes < acknowledgedBytes) continue;
        this.#acknowledge(this.#consumedBytes);
        this.#consumedBytes = 0;
      } else if (this.#ended) {
        return;
      } else {
        this.#arrival = Promise.withResolvers();
        await this.#arrival.promise;
      }
    }
  }
}
