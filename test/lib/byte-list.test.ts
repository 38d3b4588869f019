import test from "ava";
import fc from "fast-check";
import { ByteList } from "../../src/lib/byte-list.ts";

test("a list has the bytes of its pieces in order", (t) => {
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 3 }),
    fc.uint8Array({ minLength: 1_000, maxLength: 1_100 }),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 600 }), fc.boolean(), (pieces, isAsked) => {
      const list = new ByteList();
      for (const each of pieces) {
        list.push(Buffer.from(each));
        if (isAsked) list.bytes.equals(Buffer.alloc(0));
      }
      const expected = Buffer.concat(pieces);
      return (
        list.sizeBytes === expected.length &&
        list.bytes.equals(expected) &&
        Buffer.concat(list.take()).equals(expected) &&
        list.bytes.length === 0
      );
    }),
    { numRuns: 50 },
  );
  t.pass();
});

test("64 KiB that arrive byte by byte are few pieces", (t) => {
  const list = new ByteList();
  for (let n = 0; n < 65_536; n++) list.push(Buffer.from("x"));
  t.is(list.sizeBytes, 65_536);
  t.is(list.pieces.length, 256);
});

test("large pieces are not copied", (t) => {
  const large = Buffer.alloc(1_024);
  const list = new ByteList();
  list.push(large);
  t.is(list.bytes, large);
});
