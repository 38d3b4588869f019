import { randomBytes } from "node:crypto";
import test from "ava";
import fc from "fast-check";
import { type Frame, FrameDecoder, encodeFrame, maxDataBytes } from "../../src/run-as/helper/frames.mjs";

test("frames are decoded from pieces of any size", (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ note: fc.string(), data: fc.uint8Array({ maxLength: 300 }) }), { maxLength: 8 }),
      fc.array(fc.integer({ min: 1, max: 64 }), { minLength: 1, maxLength: 20 }),
      (messages, cuts) => {
        const bytes = Buffer.concat(
          messages.flatMap(({ note, data }, id) => encodeFrame({ id, note }, data)),
        );
        const decoder = new FrameDecoder();
        const frames = [];
        for (let start = 0, cut = 0; start < bytes.length; cut++) {
          const length = cuts[cut % cuts.length] ?? 1;
          frames.push(...decoder.push(bytes.subarray(start, start + length)));
          start += length;
        }
        t.deepEqual(
          frames.map(({ header, data }) => ({ note: header["note"], data: Uint8Array.from(data) })),
          messages.map(({ note, data }) => ({ note, data })),
        );
      },
    ),
  );
});

test("a chunk is passed on in the received pieces, without copies", (t) => {
  const data = Buffer.from("abcdefghij".repeat(1000));
  const bytes = Buffer.concat([
    ...encodeFrame({ id: 1, chunk: true }, data),
    ...encodeFrame({ id: 2, end: true }),
    ...encodeFrame({ id: 3 }, data),
  ]);
  const decoder = new FrameDecoder();
  const pieces = [bytes.subarray(0, 3000), bytes.subarray(3000, 15_000), bytes.subarray(15_000)];
  const frames = pieces.flatMap((piece) => [...decoder.push(piece)]);
  t.deepEqual(
    frames.map(({ header }) => header.id),
    [1, 1, 2, 3],
  );
  const chunks = frames.slice(0, 2).map((frame) => frame.data);
  t.deepEqual(Buffer.concat(chunks), data);
  for (const chunk of chunks) t.is(chunk.buffer, bytes.buffer);
  t.deepEqual(frames[3]?.data, data);
});

test("bytes of lent pieces are copied if they are stored", (t) => {
  const data = randomBytes(120_000);
  const bytes = Buffer.concat([
    ...encodeFrame({ id: 1, chunk: true }, data),
    ...encodeFrame({ id: 2, end: true }),
    ...encodeFrame({ id: 3 }, data),
  ]);
  const lent = Buffer.alloc(70_000);
  const decoder = new FrameDecoder({ isLent: true });
  const frames: Frame[] = [];
  for (let at = 0; at < bytes.length; at += lent.length) {
    const length = bytes.copy(lent, 0, at);
    for (const { header, data: own } of decoder.push(lent.subarray(0, length)))
      frames.push({ header, data: Buffer.from(own) });
    lent.fill(0);
  }
  const received = (wanted: number) =>
    Buffer.concat(frames.filter(({ header }) => header.id === wanted).map((frame) => frame.data));
  t.deepEqual(received(1), data);
  t.deepEqual(received(3), data);
});

test("a message above a limit is neither sent nor received", (t) => {
  t.throws(() => encodeFrame({}, Buffer.alloc(maxDataBytes + 1)), { instanceOf: RangeError });
  const prefix = Buffer.alloc(8);
  prefix.writeUInt32BE(2, 0);
  prefix.writeUInt32BE(maxDataBytes + 1, 4);
  t.throws(() => [...new FrameDecoder().push(prefix)], { message: /too large/ });
});

for (const json of ["null", "1", "{", ""]) {
  test(`a header of ${JSON.stringify(json)} violates the protocol`, (t) => {
    const prefix = Buffer.alloc(8);
    prefix.writeUInt32BE(json.length, 0);
    t.throws(() => [...new FrameDecoder().push(Buffer.concat([prefix, Buffer.from(json)]))]);
  });
}
