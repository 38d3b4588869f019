/**
 * Flow control of a byte stream inside the shared connection: a sender has at most a window of bytes under way, a
 * receiver acknowledges what it has consumed. So a slow reader holds up its own stream and nothing else.
 */

/** Bytes that may be under way, unacknowledged. */
export const windowBytes = 1 << 20;
/** Most bytes of one chunk. */
export const maxChunkBytes = 256 << 10;
/** Consumed bytes that are acknowledged together: with so few held back, the window has always room for a chunk. */
const acknowledgedBytes = 256 << 10;

/** The sending half. */
export class ChunkOutbox {
  #sendChunk;
  #signal;
  #underWay = 0;
  /** @type {PromiseWithResolvers<void> | undefined} */
  #room;

  /**
   * @param {(chunk: Uint8Array, onWritten?: () => void) => void} sendChunk
   * @param {AbortSignal} signal Ends waiting.
   */
  constructor(sendChunk, signal) {
    this.#sendChunk = sendChunk;
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#room?.reject(signal.reason), { once: true });
  }

  /**
   * Resolves when all of it has been sent, which waits for room in the window. One call at a time.
   * @param {Uint8Array} bytes Not to be changed before `onWritten`.
   * @param {() => void} [onWritten] Called once the kernel has them, or never.
   */
  async send(bytes, onWritten) {
    for (let start = 0; start < bytes.length; start += maxChunkBytes) {
      const chunk = bytes.subarray(start, start + maxChunkBytes);
      await this.takeRoom(chunk.length);
      this.#sendChunk(chunk, start + chunk.length === bytes.length ? onWritten : undefined);
    }
  }

  /**
   * Resolves when there is room for so many bytes, which count as sent then. One call at a time.
   * @param {number} bytes Of one chunk.
   */
  async takeRoom(bytes) {
    while (this.#underWay + bytes > windowBytes) {
      this.#signal.throwIfAborted();
      this.#room = Promise.withResolvers();
      await this.#room.promise;
    }
    this.#signal.throwIfAborted();
    this.#underWay += bytes;
  }

  /**
   * @param {number} bytes
   * @throws Error when the receiver claims to have got what was never sent.
   */
  acknowledged(bytes) {
    if (!(bytes > 0 && bytes <= this.#underWay)) throw new Error("acknowledges more than was sent");
    this.#underWay -= bytes;
    this.#room?.resolve();
  }
}

/**
 * The receiving half: iterate it once.
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
   * @param {AbortSignal} signal Ends waiting.
   */
  constructor(acknowledge, signal) {
    this.#acknowledge = acknowledge;
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#arrival?.reject(signal.reason), { once: true });
  }

  /**
   * @param {Buffer} chunk
   * @throws Error when the sender does not keep to the window.
   */
  push(chunk) {
    this.#heldBytes += chunk.length;
    if (this.#heldBytes > windowBytes) throw new Error("more bytes under way than the window allows");
    this.#chunks.push(chunk);
    this.#arrival?.resolve();
  }

  end() {
    this.#ended = true;
    this.#arrival?.resolve();
  }

  async *[Symbol.asyncIterator]() {
    for await (const [chunk] of this.#taken(1)) if (chunk) yield chunk;
  }

  /** All that there is each time. */
  batches() {
    return this.#taken(Infinity);
  }

  /** @param {number} most */
  async *#taken(most) {
    for (;;) {
      this.#signal.throwIfAborted();
      const chunks = this.#chunks.splice(0, most);
      if (chunks.length > 0) {
        // Afterwards their memory may have been given back.
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
