/**
 * Memory for copies of bytes that come and go by the gigabyte, used again and again. New memory for each would cost more than
 * the copy: the kernel clears its pages, and the collector, which does not see how little each of them is, goes through all of
 * its heap every few MiB.
 */
export class Blocks {
  readonly #blockBytes: number;
  readonly #maxFree: number;
  readonly #free: ArrayBuffer[] = [];

  /** @param maxFree how many are kept for later */
  constructor(blockBytes: number, maxFree: number) {
    this.#blockBytes = blockBytes;
    this.#maxFree = maxFree;
  }

  /** A copy for the caller, who may give it back. Few bytes, or more than a block's, get memory of their own. */
  copy(bytes: Uint8Array): Buffer {
    const { length } = bytes;
    if (length < this.#blockBytes / 2 || length > this.#blockBytes) return Buffer.from(bytes);
    const block = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#blockBytes).buffer;
    const copied = Buffer.from(block, 0, length);
    copied.set(bytes);
    return copied;
  }

  /** Takes back what {@link copy} gave, once: nobody looks at it any more. */
  giveBack({ buffer }: Buffer): void {
    const isBlock = buffer instanceof ArrayBuffer && buffer.byteLength === this.#blockBytes;
    if (isBlock && this.#free.length < this.#maxFree) this.#free.push(buffer);
  }
}
