/** Streams between daemon and helper, in one process. */
import test from "ava";
import { ChunkInbox } from "../../src/identity/helper/chunk-flow.mjs";
import { giveBack } from "../../src/lib/give-back.ts";

test("all that has come is handed on together, and acknowledged once it is done with", async (t) => {
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

test("what is given back while it is done with counts as taken", async (t) => {
  const acknowledged: number[] = [];
  const inbox = new ChunkInbox((bytes) => void acknowledged.push(bytes), new AbortController().signal);
  inbox.push(Buffer.allocUnsafeSlow(300_000));
  inbox.end();
  for await (const chunk of inbox) giveBack(chunk);
  t.deepEqual(acknowledged, [300_000]);
});
