/** Files for benchmarks of copying: many small ones and a few large ones, like those of apps. */
import { randomFillSync } from "node:crypto";
import { mkdir, open, writeFile } from "node:fs/promises";
import { join } from "node:path";

const smallFiles = 2_000;
const smallBytes = 8 * 1024;
const largeBytes = 256 * 1024 ** 2;
const blockBytes = 4 * 1024 ** 2;

/** Fills `dir` with `bytes` bytes that no file system can compress. */
export async function writeBulk(dir: string, bytes: number): Promise<void> {
  const block = randomFillSync(Buffer.alloc(blockBytes));
  for (let number = 0; number < smallFiles; number += 1) {
    const folder = join(dir, "small", String(number % 50));
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, `${number}.bin`), block.subarray(0, smallBytes));
  }
  let left = bytes - smallFiles * smallBytes;
  for (let number = 0; left > 0; number += 1) {
    await using file = await open(join(dir, `large-${number}.bin`), "w");
    for (let written = 0; written < largeBytes && left > 0; written += blockBytes, left -= blockBytes) {
      await file.write(block, 0, Math.min(blockBytes, left));
    }
  }
}
