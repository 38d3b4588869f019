import test from "ava";
import fc from "fast-check";
import { countStreams } from "../../src/transport/first-frames.ts";
import { openAndReset, openBadly, sessionStart } from "../support/http2-frames.ts";

function frame(type: number, payloadBytes: number): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payloadBytes, 0, 3);
  head.writeUInt8(type, 3);
  // Payload that looks like HEADERS is none.
  return Buffer.concat([head, Buffer.alloc(payloadBytes, "\0\0\0\x01\x05")]);
}

const cases: Record<string, readonly [Buffer, number]> = {
  "no frame": [Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0],
  "the preface alone, not yet whole": [Buffer.from("PRI"), 0],
  "a session's start": [sessionStart, 0],
  "a stream": [Buffer.concat([sessionStart, openAndReset(0)]), 1],
  "three streams, one of them bad": [
    Buffer.concat([sessionStart, openAndReset(0), openBadly(1), openAndReset(2)]),
    3,
  ],
  "streams between frames of other types": [
    Buffer.concat([sessionStart, frame(0, 500), openAndReset(0), frame(8, 4), frame(6, 8), openAndReset(1)]),
    2,
  ],
  "a stream whose headers are cut off": [Buffer.concat([sessionStart, openAndReset(0).subarray(0, 10)]), 1],
  "a frame head that is cut off": [Buffer.concat([sessionStart, openAndReset(0).subarray(0, 8)]), 0],
};

for (const [name, [bytes, streams]] of Object.entries(cases)) {
  test(`${name}: ${streams}`, (t) => {
    t.is(countStreams(bytes), streams);
  });
}

test("any bytes have a count", (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 2_000 }), (bytes) => {
      const count = countStreams(Buffer.concat([sessionStart, bytes]));
      return count >= 0 && count <= bytes.length / 9;
    }),
  );
  t.pass();
});
