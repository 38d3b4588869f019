import test from "ava";
import { randomFillSync } from "node:crypto";
import { mkdtemp, open, rm, writeFile, type FileHandle } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readPieces } from "../../src/lib/file-pieces.ts";

const pieceBytes = 256 * 1024;
const content = randomFillSync(Buffer.alloc(5 * pieceBytes + 17));

async function openFile(data: Buffer): Promise<FileHandle & AsyncDisposable> {
  const dir = await mkdtemp(join(tmpdir(), "svc-pieces-"));
  await writeFile(join(dir, "file"), data);
  const file = await open(join(dir, "file"));
  await rm(dir, { recursive: true });
  return file;
}

const ranges: Record<string, { offset?: number; length?: number }> = {
  "all of it": {},
  "from the middle": { offset: 1000 },
  "the first bytes": { length: 10 },
  "exactly two pieces": { length: 2 * pieceBytes },
  "more than there is": { offset: 3 * pieceBytes, length: 10 * pieceBytes },
  "beyond the end": { offset: 10 * pieceBytes },
  "no byte": { length: 0 },
};

for (const [title, range] of Object.entries(ranges)) {
  test(`reads ${title}`, async (t) => {
    await using file = await openFile(content);
    const pieces: Buffer[] = [];
    for await (const piece of readPieces(file, range)) pieces.push(Buffer.from(piece));
    const { offset = 0, length = content.length } = range;
    t.true(Buffer.concat(pieces).equals(content.subarray(offset, offset + length)));
    t.true(pieces.every((piece) => piece.length <= pieceBytes));
  });
}

test("a piece stays as it is until the next is asked for, though that is being read", async (t) => {
  await using file = await openFile(content);
  let at = 0;
  for await (const piece of readPieces(file)) {
    // Has the next one read: reads of one file handle are done in their order.
    await file.read(Buffer.alloc(1), 0, 1, 0);
    await new Promise((resolve) => setImmediate(resolve));
    t.true(piece.equals(content.subarray(at, at + piece.length)), `at ${at}`);
    at += piece.length;
  }
  t.is(at, content.length);
});

test("takes turns with two buffers", async (t) => {
  await using file = await openFile(content);
  const memories = new Set<ArrayBufferLike>();
  for await (const { buffer } of readPieces(file)) memories.add(buffer);
  t.is(memories.size, 2);
});

test("who leaves early may close the file", async (t) => {
  const file = await openFile(content);
  for await (const piece of readPieces(file)) {
    t.is(piece.length, pieceBytes);
    break;
  }
  await t.notThrowsAsync(file.close());
});

test("an error of the file is the reader's", async (t) => {
  const file = await openFile(content);
  const pieces = readPieces(file);
  await pieces.next();
  await pieces.next();
  await file.close();
  await t.throwsAsync(
    async () => {
      for await (const _ of pieces);
    },
    { code: "EBADF" },
  );
});
