/**
 * Limits the entries of a tar stream, because a small tree that contains itself repeatedly becomes millions of
 * entries.
 */
import { Transform } from "node:stream";

const blockBytes = 512;

/** Size of tar archives. */
export interface ExportedSize {
  bytes: number;
  /** Number of headers. */
  entries: number;
}

/**
 * Passes on a tar archive of files under 8 GiB, and adds its size to `total`; fails with `error()` when `total` has
 * more than `maxEntries`.
 */
export function tarEntryLimit(maxEntries: number, total: ExportedSize, error: () => Error): Transform {
  /** Bytes of content and padding until the next header. */
  let contentBytes = 0;
  let header: Buffer = Buffer.alloc(0);

  /** Returns false when the limit is exceeded. */
  function count(chunk: Buffer): boolean {
    for (let at = 0; at < chunk.length;) {
      const skipped = Math.min(contentBytes, chunk.length - at);
      contentBytes -= skipped;
      at += skipped;
      const piece = chunk.subarray(at, at + blockBytes - header.length);
      at += piece.length;
      header = header.length === 0 ? piece : Buffer.concat([header, piece]);
      if (header.length < blockBytes) continue;
      // Blocks of zeros end the archive.
      if (header[0] !== 0) total.entries += 1;
      if (total.entries > maxEntries) return false;
      contentBytes = Math.ceil(sizeOf(header) / blockBytes) * blockBytes;
      header = Buffer.alloc(0);
    }
    return true;
  }

  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      total.bytes += chunk.length;
      if (count(chunk)) done(null, chunk);
      else done(error());
    },
  });
}

/** The octal size field of a ustar header. */
function sizeOf(header: Buffer): number {
  return Number.parseInt(header.toString("latin1", 124, 136), 8) || 0;
}
