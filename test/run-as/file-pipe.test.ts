/** Bytes of files by reference: taken by a pipe, moved to another one, and left over. */
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { filePipeBytes, openFilePipe } from "../../src/run-as/helper/file-pipe.mjs";
import { pipeCalls } from "../../src/run-as/helper/pipe-calls.mjs";

const closeOnExec = 0o2000000;
const nonBlocking = 0o4000;
const pipeBytes = 64 << 10;

test("bytes that do not fit into another pipe are read in order", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-file-pipe-"));
  const path = join(dir, "file");
  const content = Buffer.alloc(300_000, "0123456789abcdef!");
  await writeFile(path, content);
  const fd = openSync(path, "r");
  const fds = new Int32Array(2);
  pipeCalls()?.pipe2(fds, closeOnExec | nonBlocking);
  const [readFd = -1, writeFd = -1] = fds;
  try {
    using pipe = openFilePipe();
    if (pipe === undefined) throw new Error("there are no native calls");
    // Not at the start of a page.
    const taken = await pipe.take(fd, 5, filePipeBytes);
    t.true(taken > pipeBytes && taken <= filePipeBytes, String(taken));
    writeSync(writeFd, "front");
    const moved = pipe.moveTo(writeFd, taken);
    t.true(moved > 0 && moved < pipeBytes, String(moved));
    const rest = pipe.read(taken - moved);
    const got = Buffer.alloc(pipeBytes);
    t.is(readSync(readFd, got), moved + 5);
    t.true(Buffer.concat([got.subarray(5, moved + 5), rest]).equals(content.subarray(5, taken + 5)));
    // The pipe is empty, and nothing is left at the end of the file.
    t.is(await pipe.take(fd, content.length - 1, filePipeBytes), 1);
    t.is(pipe.read(1).toString("latin1"), String.fromCharCode(content.at(-1) ?? 0));
    t.is(await pipe.take(fd, content.length, filePipeBytes), 0);
  } finally {
    for (const each of [fd, readFd, writeFd]) closeSync(each);
    await rm(dir, { recursive: true });
  }
});

test("a file that cannot be sent by reference is not taken", async (t) => {
  const fd = openSync("/", "r");
  try {
    using pipe = openFilePipe();
    t.is(await pipe?.take(fd, 0, filePipeBytes), 0);
  } finally {
    closeSync(fd);
  }
});
