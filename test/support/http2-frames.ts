/** HTTP/2 by the byte (RFC 9113, 7541), for what a well-behaved client would not send. */

/** The preface and empty SETTINGS. */
export const sessionStart = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from("000000040000000000", "hex"),
]);

/** The `index`th stream of a session: HEADERS of `GET http://localhost/v1/status`, and RST_STREAM with CANCEL at once. */
export function openAndReset(index: number): Buffer {
  // GET and http by HPACK's static table, path and authority as literals.
  const fields = Buffer.from("\x82\x86\x04\x0a/v1/status\x01\x09localhost", "latin1");
  const frames = Buffer.alloc(9 + fields.length + 9 + 4);
  const stream = index * 2 + 1;
  frames.writeUIntBE(fields.length, 0, 3);
  frames.writeUInt8(1, 3);
  // END_STREAM and END_HEADERS.
  frames.writeUInt8(0x5, 4);
  frames.writeUInt32BE(stream, 5);
  fields.copy(frames, 9);
  const reset = 9 + fields.length;
  frames.writeUIntBE(4, reset, 3);
  frames.writeUInt8(3, reset + 3);
  frames.writeUInt32BE(stream, reset + 5);
  frames.writeUInt32BE(8, reset + 9);
  return frames;
}
