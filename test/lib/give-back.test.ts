import test from "ava";
import { giveBack } from "../../src/lib/give-back.ts";

test("large memory is given back at once, that of others is left alone", (t) => {
  const own = new Uint8Array(64 << 10);
  const part = new Uint8Array(64 << 10).subarray(1);
  const pooled = Buffer.from("small");
  const shared = new Uint8Array(new SharedArrayBuffer(64 << 10));
  for (const bytes of [own, part, pooled, shared]) giveBack(bytes);
  t.deepEqual(
    [own, part, pooled, shared].map(({ length }) => length),
    [0, (64 << 10) - 1, 5, 64 << 10],
  );
});
