/** Envelopes of Connect's streaming protocol: one byte of flags, four bytes of length (big endian), then the data. */
import { SvcError } from "../../errors.ts";

export interface Envelope {
  readonly flags: number;
  readonly data: Buffer;
}

/** Flag: the data is the JSON that ends the stream. */
export const endStreamFlag = 0b10;
/** Flag: the data is compressed. This client never offers compression. */
const compressedFlag = 0b01;
const headBytes = 5;
/** The daemon sends no message larger than 16 MiB. */
const maxDataBytes = 16 * 1024 * 1024;

export function encodeEnvelope(flags: number, data: Uint8Array): Buffer {
  const envelope = Buffer.allocUnsafe(headBytes + data.length);
  envelope.writeUInt8(flags, 0);
  envelope.writeUInt32BE(data.length, 1);
  envelope.set(data, headBytes);
  return envelope;
}

/** Splits bytes into envelopes, wherever chunks end. @throws SvcError if the bytes are not a stream of envelopes */
export async function* readEnvelopes(chunks: AsyncIterable<Buffer>): AsyncGenerator<Envelope> {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let needed = headBytes;
  for await (const chunk of chunks) {
    pending.push(chunk);
    pendingBytes += chunk.length;
    if (pendingBytes < needed) continue;
    let bytes = pending.length === 1 ? chunk : Buffer.concat(pending, pendingBytes);
    for (;;) {
      needed = headBytes;
      if (bytes.length < headBytes) break;
      const flags = bytes.readUInt8(0);
      const length = bytes.readUInt32BE(1);
      if ((flags & compressedFlag) !== 0 || length > maxDataBytes) {
        throw new SvcError("internal", "the daemon's response is not a stream of messages");
      }
      needed = headBytes + length;
      if (bytes.length < needed) break;
      yield { flags, data: bytes.subarray(headBytes, needed) };
      bytes = bytes.subarray(needed);
    }
    pending = [bytes];
    pendingBytes = bytes.length;
  }
  if (pendingBytes > 0) throw new SvcError("unavailable", "the daemon's response ended early");
}
