/** Archives on a local disk. */
import { mkdtemp, readdir, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { LocalStorage, openLocalFile } from "../../src/backups/storages/local-storage.ts";

test("an archive that is truncated while it is read fails", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-local-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const path = join(dir, "archive");
  await writeFile(path, Buffer.alloc(1 << 20));
  await using file = await openLocalFile(path);
  const pieces = file.read(0, file.sizeBytes)[Symbol.asyncIterator]();
  t.false((await pieces.next()).done ?? false);
  await truncate(path, 1_000);
  await t.throwsAsync(pieces.next(), { message: "the file was truncated" });
});

test("a range beyond the end returns the existing part", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-local-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await writeFile(join(dir, "archive"), "abc");
  await using file = await openLocalFile(join(dir, "archive"));
  t.is(Buffer.concat(await Array.fromAsync(file.read(0, 1_000))).toString(), "abc");
});

test("the directory of an app is removed with its last archive, also while another one is added", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-local-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const file = join(dir, "archive");
  await writeFile(file, "abc");
  const storage = new LocalStorage("disk", join(dir, "disk"), process.getuid?.() ?? 0);
  const archive = (number: number) => ({ appId: "web", name: `archive ${number}` });
  const cycle = async (number: number): Promise<void> => {
    await storage.put(archive(number), file, {});
    await storage.remove(archive(number));
  };
  for (let round = 0; round < 20; round++) await Promise.all([1, 2, 3, 4].map(cycle));
  t.deepEqual(await readdir(join(dir, "disk")), []);
  await storage.put(archive(1), file, {});
  await storage.put(archive(2), file, {});
  await storage.remove(archive(1));
  t.deepEqual(await readdir(join(dir, "disk/web")), ["archive 2"]);
});
