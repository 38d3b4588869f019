/** Frames of gRPC over HTTP/2: a byte that is 0 without compression, the length of the message, and the message. */

const headerBytes = 5;
const maxMessageBytes = 16 * 1024 * 1024;

export function grpcFrame(message: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, headerBytes);
  return frame;
}

/** The messages of a stream. @throws Error for a message that is compressed or too large, and for a truncated one */
export async function* grpcMessages(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  for await (const chunk of chunks) {
    pending.push(chunk);
    pendingBytes += chunk.length;
    if (pendingBytes < frameLength(pending[0])) continue;
    let rest = Buffer.concat(pending);
    while (rest.length >= frameLength(rest)) {
      const end = frameLength(rest);
      yield rest.subarray(headerBytes, end);
      rest = rest.subarray(end);
    }
    pending = rest.length === 0 ? [] : [rest];
    pendingBytes = rest.length;
  }
  if (pendingBytes > 0) throw new Error("the gRPC stream ended in the middle of a message");
}

/** Length of the first frame, or of a header while the header is incomplete. */
function frameLength(bytes: Buffer | undefined): number {
  if (bytes === undefined || bytes.length < headerBytes) return headerBytes;
  if (bytes[0] !== 0) throw new Error("a gRPC message is compressed");
  const length = bytes.readUInt32BE(1);
  if (length > maxMessageBytes) throw new Error(`a gRPC message has more than ${maxMessageBytes} bytes`);
  return headerBytes + length;
}
