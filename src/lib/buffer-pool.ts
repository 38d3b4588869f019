/**
 * Reusable buffers for copies of gigabytes of bytes. Allocating for each copy would cost more than the copy:
 * the kernel clears the pages, and the garbage collector scans its whole heap every few MiB of external
 * memory.
 */
export class BufferPool {
  readonly #bufferBytes: number;
  readonly #maxFree: number;
  readonly #free: ArrayBuffer[] = [];

  /** @param maxFree maximum number of unused buffers */
  constructor(bufferBytes: number, maxFree: number) {
    this.#bufferBytes = bufferBytes;
    this.#maxFree = maxFree;
  }

  /**
   * A copy for the caller, who may release it. A copy larger than a buffer, or smaller than half of one, gets
   * separate memory.
   */
  copy(bytes: Uint8Array): Buffer {
    const { length } = bytes;
    if (length < this.#bufferBytes / 2 || length > this.#bufferBytes) return Buffer.from(bytes);
    const memory = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#bufferBytes).buffer;
    const copied = Buffer.from(memory, 0, length);
    copied.set(bytes);
    return copied;
  }

  /** Reuses the memory of a {@link copy}, which must no longer be used. Call it at most once per copy. */
  release({ buffer }: Buffer): void {
    const isPooled = buffer instanceof ArrayBuffer && buffer.byteLength === this.#bufferBytes;
    if (isPooled && this.#free.length < this.#maxFree) this.#free.push(buffer);
  }
}

/**
 * Frees the memory of bytes that are no longer used. The garbage collector does not see memory outside of its heap:
 * without this, a stream makes it scan the whole heap every few MiB, which takes longer than the stream's own work.
 * @param bytes must not be shared; part of a larger buffer is not freed
 */
export function freeMemory({ buffer, byteLength }: Uint8Array): void {
  if (byteLength >= smallBytes && byteLength === buffer.byteLength && buffer instanceof ArrayBuffer)
    buffer.transfer(0);
}

const smallBytes = 16 << 10;
