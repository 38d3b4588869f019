import fc from "fast-check";
import test from "ava";
import { CappedOutput, capText, outputCapBytes } from "../../../src/scheduler/runs/capped-output.ts";

function cap(bytes: Uint8Array, chunkBytes: number) {
  const output = new CappedOutput();
  for (let at = 0; at < bytes.length; at += chunkBytes) output.push(bytes.subarray(at, at + chunkBytes));
  return output.read();
}

for (const length of [0, 1, outputCapBytes / 2, outputCapBytes - 1, outputCapBytes]) {
  test(`${length} bytes are retained completely`, (t) => {
    const text = "x".repeat(length);
    for (const chunkBytes of [1000, outputCapBytes])
      t.deepEqual(cap(Buffer.from(text), chunkBytes), { text, isTruncated: false });
    t.deepEqual(capText(text), { text, isTruncated: false });
  });
}

test("longer output keeps its head and tail with a marker that states how much is missing", (t) => {
  const lines = Array.from({ length: 50_000 }, (_, at) => `line ${at}\n`).join("");
  for (const { text, isTruncated } of [cap(Buffer.from(lines), 777), capText(lines)]) {
    t.true(isTruncated);
    t.true(Buffer.byteLength(text) <= outputCapBytes);
    const [, head = "", count, tail = ""] = /^([^]*)\n\[… (\d+) bytes omitted …\]\n([^]*)$/.exec(text) ?? [];
    t.true(lines.startsWith(head));
    t.true(lines.endsWith(tail));
    t.is(head.length + tail.length + Number(count), lines.length);
    t.true(head.length > 32_000 && tail.length > 32_000);
  }
});

test("the result is UTF-8 within the limit, for any input and chunk sizes", (t) => {
  const piece = fc.oneof(
    fc.string({ unit: "grapheme", maxLength: 20 }).map((text) => Buffer.from(text)),
    fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
  );
  fc.assert(
    fc.property(
      piece,
      fc.integer({ min: 1, max: 200_000 }),
      fc.integer({ min: 1, max: 70_000 }),
      (unit, length, chunk) => {
        const bytes = Buffer.alloc(length, unit.length === 0 ? "é" : unit);
        const { text, isTruncated } = cap(bytes, chunk);
        t.true(Buffer.byteLength(text) <= outputCapBytes);
        t.true(text.isWellFormed());
        const whole = bytes.toString();
        if (!isTruncated) t.is(text, whole);
        // A character is never split if the source was complete.
        if (!whole.includes("\ufffd")) t.false(text.includes("\ufffd"));
      },
    ),
    { numRuns: 200 },
  );
});

test("bytes that are not UTF-8 stay within the limit, too, although they grow", (t) => {
  const { text, isTruncated } = cap(Buffer.alloc(60_000, 0xff), 4_096);
  t.true(isTruncated);
  t.true(Buffer.byteLength(text) <= outputCapBytes);
});
