import test from "ava";
import { BufferPool, freeMemory } from "../../src/lib/buffer-pool.ts";

const bufferBytes = 1024;

test("a released buffer is reused, up to the maximum number of unused buffers", (t) => {
  const pool = new BufferPool(bufferBytes, 1);
  const [one, two] = [pool.copy(Buffer.alloc(1000, 1)), pool.copy(Buffer.alloc(1000, 2))];
  t.not(one.buffer, two.buffer);
  t.deepEqual(one, Buffer.alloc(1000, 1));
  pool.release(one);
  pool.release(two);
  const again = [3, 4].map((byte) => pool.copy(Buffer.alloc(bufferBytes, byte)));
  t.is(again[0]?.buffer, one.buffer);
  t.not(again[1]?.buffer, two.buffer);
  t.deepEqual(again, [Buffer.alloc(bufferBytes, 3), Buffer.alloc(bufferBytes, 4)]);
});

test("copies much smaller or larger than a buffer get separate memory", (t) => {
  const pool = new BufferPool(bufferBytes, 1);
  const memory = pool.copy(Buffer.alloc(bufferBytes));
  pool.release(memory);
  for (const length of [0, 1, bufferBytes / 2 - 1, bufferBytes + 1]) {
    const copied = pool.copy(Buffer.alloc(length, 7));
    t.not(copied.buffer, memory.buffer, String(length));
    t.deepEqual(copied, Buffer.alloc(length, 7));
    pool.release(copied);
  }
  t.is(pool.copy(Buffer.alloc(bufferBytes)).buffer, memory.buffer);
});

test("large memory is freed at once, shared memory is not", (t) => {
  const own = new Uint8Array(64 << 10);
  const part = new Uint8Array(64 << 10).subarray(1);
  const pooled = Buffer.from("small");
  const shared = new Uint8Array(new SharedArrayBuffer(64 << 10));
  for (const bytes of [own, part, pooled, shared]) freeMemory(bytes);
  t.deepEqual(
    [own, part, pooled, shared].map(({ length }) => length),
    [0, (64 << 10) - 1, 5, 64 << 10],
  );
});
