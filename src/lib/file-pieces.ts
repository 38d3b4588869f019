/** Files read for sending: as fast as they come, without new memory for each piece. */
import type { FileHandle } from "node:fs/promises";

/** The fewer pieces the less each byte costs, up to what a socket takes at once. */
const pieceBytes = 256 * 1024;

/**
 * Reads a file in pieces. A piece is good until the next is asked for: two buffers take turns, one to be sent while the
 * other is read into. (With a new buffer for each, a download spends half of its time collecting them.)
 * @param offset bytes to leave out before the first piece
 * @param length bytes to read at most
 */
export async function* readPieces(
  file: FileHandle,
  { offset = 0, length = Number.POSITIVE_INFINITY }: { offset?: number; length?: number } = {},
): AsyncGenerator<Buffer> {
  const sizeBytes = Math.min(pieceBytes, length);
  let current = Buffer.allocUnsafeSlow(sizeBytes);
  let next = Buffer.allocUnsafeSlow(sizeBytes);
  let position = offset;
  let left = length;
  const read = (buffer: Buffer): Promise<number> => readAt(file, buffer, position, Math.min(sizeBytes, left));

  let reading = read(current);
  try {
    for (;;) {
      const bytesRead = await reading;
      if (bytesRead === 0) return;
      position += bytesRead;
      left -= bytesRead;
      reading = read(next);
      yield current.subarray(0, bytesRead);
      [current, next] = [next, current];
    }
  } finally {
    // Who leaves early must not be told of what that read comes to, but must not take the file away from it either.
    await reading.catch(() => 0);
  }
}

async function readAt(file: FileHandle, buffer: Buffer, position: number, length: number): Promise<number> {
  if (length === 0) return 0;
  const { bytesRead } = await file.read(buffer, 0, length, position);
  return bytesRead;
}
