/**
 * Gives the memory of bytes back that nobody will look at any more. The collector does not see what lies outside of its heap:
 * left to it, a stream makes it go through all of the heap every few MiB, which takes longer than the stream's own work.
 * @param bytes of the caller's alone. Part of a larger piece of memory: nothing happens.
 */
export function giveBack({ buffer, byteLength }: Uint8Array): void {
  if (byteLength >= smallBytes && byteLength === buffer.byteLength && buffer instanceof ArrayBuffer)
    buffer.transfer(0);
}

const smallBytes = 16 << 10;
