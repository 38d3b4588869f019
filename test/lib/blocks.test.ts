import test from "ava";
import { Blocks } from "../../src/lib/blocks.ts";

const blockBytes = 1024;

test("what is given back is used again, of as many as are kept", (t) => {
  const blocks = new Blocks(blockBytes, 1);
  const [one, two] = [blocks.copy(Buffer.alloc(1000, 1)), blocks.copy(Buffer.alloc(1000, 2))];
  t.not(one.buffer, two.buffer);
  t.deepEqual(one, Buffer.alloc(1000, 1));
  blocks.giveBack(one);
  blocks.giveBack(two);
  const again = [3, 4].map((byte) => blocks.copy(Buffer.alloc(blockBytes, byte)));
  t.is(again[0]?.buffer, one.buffer);
  t.not(again[1]?.buffer, two.buffer);
  t.deepEqual(again, [Buffer.alloc(blockBytes, 3), Buffer.alloc(blockBytes, 4)]);
});

test("few bytes hold no whole block, and too many for one are copied all the same", (t) => {
  const blocks = new Blocks(blockBytes, 1);
  const block = blocks.copy(Buffer.alloc(blockBytes));
  blocks.giveBack(block);
  for (const length of [0, 1, blockBytes / 2 - 1, blockBytes + 1]) {
    const copied = blocks.copy(Buffer.alloc(length, 7));
    t.not(copied.buffer, block.buffer, String(length));
    t.deepEqual(copied, Buffer.alloc(length, 7));
    blocks.giveBack(copied);
  }
  t.is(blocks.copy(Buffer.alloc(blockBytes)).buffer, block.buffer);
});
