/** The frames of an archive while they are written. */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { constants, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import test from "ava";
import { FrameWriter, tableRowBytes } from "../../src/run-as/helper/archive/frames.mjs";

const mib = 1 << 20;
const frameBytes = 4 * mib;
/** Text that the thorough level compresses better than the fast one. */
const text = readFileSync(createRequire(import.meta.url).resolve("typescript")).subarray(0, frameBytes);

const compressed = (raw: Buffer, level: number): Buffer =>
  zstdCompressSync(raw, {
    // In one pass.
    chunkSize: 2 * raw.length,
    params: { [constants.ZSTD_c_compressionLevel]: level, [constants.ZSTD_c_checksumFlag]: 1 },
  });

async function write(pieces: readonly Buffer[]) {
  const frames: Buffer[] = [];
  const writer = new FrameWriter((frame) => {
    frames.push(frame);
    return Promise.resolve();
  });
  for (const piece of pieces) {
    // Only valid during the call; overwritten afterwards.
    const lent = Buffer.from(piece);
    writer.write(lent);
    lent.fill(0);
    await writer.room();
  }
  await writer.end();
  return { frames, table: writer.table(), storedBytes: writer.storedBytes };
}

test("each frame is a complete zstd frame", async (t) => {
  const raw = Buffer.concat([text, text, randomBytes(5 * mib)]);
  const pieces = Array.from({ length: Math.ceil(raw.length / 700_000) }, (_, n) =>
    raw.subarray(n * 700_000, (n + 1) * 700_000),
  );
  const { frames, table, storedBytes } = await write(pieces);
  t.is(frames.length, Math.ceil(raw.length / frameBytes));
  t.is(table.length, frames.length * tableRowBytes);
  t.is(storedBytes, Buffer.concat(frames).length);
  for (const [n, frame] of frames.entries()) {
    const part = raw.subarray(n * frameBytes, (n + 1) * frameBytes);
    t.true(zstdDecompressSync(frame).equals(part), `${n}`);
    t.is(frame.length, compressed(part, 3).length, `${n}`);
  }
});

test("data is compressed thoroughly if that saves space, even after data for which it does not", async (t) => {
  const noise = Array.from({ length: 20 }, () => randomBytes(frameBytes));
  const [fast, thorough] = [compressed(text, 1).length, compressed(text, 3).length];
  t.true(thorough < 0.95 * fast, `${thorough} of ${fast}`);
  const { frames } = await write([...noise, ...Array.from({ length: 36 }, () => text)]);
  // Tried again every 16 frames.
  for (const frame of frames.slice(-16)) t.is(frame.length, thorough);
});
