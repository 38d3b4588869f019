/** What a reader of foreign tars holds in memory, whatever they say (T 29). */
import test from "ava";
import { TarReader } from "../../src/identity/helper/archive/tar-reader.mjs";

const ignore = (): undefined => undefined;

function foreignReader(): TarReader {
  const handler = { entry: ignore, content: ignore, padding: ignore, entryEnd: ignore };
  return new TarReader(handler, { foreign: true });
}

/** An extended header that says it has so many bytes. */
function extendedHeader(type: string, size: number): Buffer {
  const block = Buffer.alloc(512);
  block.write("h", 0);
  for (const at of [100, 108, 116]) block.write("0000000\0", at);
  block.write(`${size.toString(8).padStart(11, "0")}\0`, 124);
  block.write("00000000000\0", 136);
  block.write(`        ${type}`, 148);
  block.write("ustar\x0000", 257);
  const sum = block.reduce((all, byte) => all + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

for (const type of ["x", "g", "L", "K"]) {
  test(`an extended header "${type}" that says it is large is refused before any of it is held`, (t) => {
    const reader = foreignReader();
    reader.push(extendedHeader(type, 100));
    t.throws(() => foreignReader().push(extendedHeader(type, 8 * 1024 ** 3 - 1)), { message: /too large/ });
  });
}

test("any number of extended headers before an entry takes no memory", (t) => {
  const reader = foreignReader();
  const headers = Buffer.concat(Array.from({ length: 1000 }, () => extendedHeader("x", 0)));
  const before = process.memoryUsage().arrayBuffers;
  for (let turn = 0; turn < 200; turn++) reader.push(headers);
  const grownBytes = process.memoryUsage().arrayBuffers - before;
  // All of them are 100 MB.
  t.true(grownBytes < 20e6, `${grownBytes} bytes`);
});
