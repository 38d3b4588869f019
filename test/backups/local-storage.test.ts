/** Archives on a disk of the daemon's own. */
import { mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { openLocalFile } from "../../src/backups/storages/local-storage.ts";

test("an archive that becomes shorter while it is read is not taken for read", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-local-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const path = join(dir, "archive");
  await writeFile(path, Buffer.alloc(1 << 20));
  await using file = await openLocalFile(path);
  const pieces = file.read(0, file.sizeBytes)[Symbol.asyncIterator]();
  t.false((await pieces.next()).done ?? false);
  await truncate(path, 1_000);
  await t.throwsAsync(pieces.next(), { message: "the file became shorter" });
});

test("who asks for more than there is gets what there is", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-local-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await writeFile(join(dir, "archive"), "abc");
  await using file = await openLocalFile(join(dir, "archive"));
  t.is(Buffer.concat(await Array.fromAsync(file.read(0, 1_000))).toString(), "abc");
});
