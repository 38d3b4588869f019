/** Files like those of apps: alternating text and noise, in many small files and a few large ones. */
import { randomFillSync } from "node:crypto";
import { mkdir, open, writeFile } from "node:fs/promises";
import { join } from "node:path";

const mib = 1024 ** 2;
const smallBytes = 8 * 1024;
const largeBytes = 64 * mib;
const filesOfFolder = 100;
const stretchBytes = 4096;
/** The unique incompressible part of each section: repetitions cost a compressor nothing. */
const noiseBytes = Math.floor(stretchBytes * 0.4);

/** Fills `dir` with `bytes` bytes, including `smallFiles` files of 8 KiB. */
export async function writeMixed(dir: string, bytes: number, smallFiles: number): Promise<void> {
  const block = Buffer.alloc(mib, "All work and no play makes Jack a dull boy. ");
  for (let number = 0; number < smallFiles; number += 1) {
    const folder = join(dir, "small", String(Math.floor(number / filesOfFolder)));
    if (number % filesOfFolder === 0) await mkdir(folder, { recursive: true });
    const content = block.subarray(0, smallBytes);
    addNoise(content);
    await writeFile(join(folder, `${number}.bin`), content);
  }
  let left = bytes - smallFiles * smallBytes;
  await mkdir(dir, { recursive: true });
  for (let number = 0; left > 0; number += 1) {
    await using file = await open(join(dir, `large-${number}.bin`), "w");
    for (let written = 0; written < largeBytes && left > 0; written += mib, left -= mib) {
      addNoise(block);
      await file.write(block, 0, Math.min(mib, left));
    }
  }
}

function addNoise(bytes: Buffer): void {
  for (let at = 0; at < bytes.length; at += stretchBytes) randomFillSync(bytes, at, noiseBytes);
}
