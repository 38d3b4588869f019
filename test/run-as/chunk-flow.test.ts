/** Streams between daemon and helper, in one process. */
import test from "ava";
import { ChunkInbox } from "../../src/run-as/helper/chunk-flow.mjs";
import { freeMemory } from "../../src/lib/buffer-pool.ts";

test("all received chunks are yielded together, and acknowledged after use", async (t) => {
  const acknowledged: number[] = [];
  const inbox = new ChunkInbox((bytes) => void acknowledged.push(bytes), new AbortController().signal);
  for (const byte of [1, 2, 3]) inbox.push(Buffer.alloc(100_000, byte));
  const batches: number[][] = [];
  for await (const pieces of inbox.batches()) {
    t.is(acknowledged.length, batches.length);
    batches.push(pieces.map(([first]) => first ?? 0));
    if (batches.length === 1) for (const byte of [4, 5, 6]) inbox.push(Buffer.alloc(100_000, byte));
    else inbox.end();
  }
  t.deepEqual(batches, [
    [1, 2, 3],
    [4, 5, 6],
  ]);
  t.deepEqual(acknowledged, [300_000, 300_000]);
});

test("chunks whose memory is released during use count as consumed", async (t) => {
  const acknowledged: number[] = [];
  const inbox = new ChunkInbox((bytes) => void acknowledged.push(bytes), new AbortController().signal);
  inbox.push(Buffer.allocUnsafeSlow(300_000));
  inbox.end();
  for await (const chunk of inbox) freeMemory(chunk);
  t.deepEqual(acknowledged, [300_000]);
});

test("small chunks are joined, and empty ones dropped, so that their number is bounded", async (t) => {
  const inbox = new ChunkInbox(() => undefined, new AbortController().signal);
  const sent = Buffer.from(Array.from({ length: 100_000 }, (_, index) => index % 251));
  for (let at = 0; at < sent.length; at++) {
    inbox.push(sent.subarray(at, at + 1));
    inbox.push(sent.subarray(0, 0));
  }
  inbox.end();
  for await (const chunks of inbox.batches()) {
    t.true(chunks.length < 50, `${chunks.length} chunks`);
    t.deepEqual(Buffer.concat(chunks), sent);
  }
});
