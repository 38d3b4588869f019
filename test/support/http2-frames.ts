/** HTTP/2 frames as bytes (RFC 9113, 7541), for requests that a well-behaved client would not send. */

/** The preface and empty SETTINGS. */
export const sessionStart = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from("000000040000000000", "hex"),
]);

/** The `index`th stream of a session, opened with a header that has no name. */
export function openBadly(index: number): Buffer {
  return headersFrame(index, Buffer.from("\x82\x86\x84\x00\x00\x01x", "latin1"));
}

/** The `index`th stream of a session: HEADERS of `GET http://localhost/v1/status`, and RST_STREAM with CANCEL at once. */
export function openAndReset(index: number): Buffer {
  const reset = Buffer.alloc(9 + 4);
  reset.writeUIntBE(4, 0, 3);
  reset.writeUInt8(3, 3);
  reset.writeUInt32BE(streamId(index), 5);
  reset.writeUInt32BE(8, 9);
  return Buffer.concat([openStatus(index), reset]);
}

/** The `index`th stream of a session: `GET http://localhost/v1/status`. */
export function openStatus(index: number): Buffer {
  // GET and http by HPACK's static table, path and authority as literals.
  return headersFrame(index, Buffer.from("\x82\x86\x04\x0a/v1/status\x01\x09localhost", "latin1"));
}

/** A complete request without a body. */
function headersFrame(index: number, fields: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(fields.length, 0, 3);
  head.writeUInt8(1, 3);
  // END_STREAM and END_HEADERS.
  head.writeUInt8(0x5, 4);
  head.writeUInt32BE(streamId(index), 5);
  return Buffer.concat([head, fields]);
}

function streamId(index: number): number {
  return index * 2 + 1;
}
