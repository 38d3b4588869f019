/** What becomes of an upload that nobody has confirmed. */
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { newArchiveName } from "../../src/backups/archive-name.ts";
import { Catalogue } from "../../src/backups/catalogue.ts";
import { settleLeftovers } from "../../src/backups/leftovers.ts";
import { LocalStorage } from "../../src/backups/storages/local-storage.ts";
import { SvcError } from "../../src/errors.ts";
import { currentExecutor } from "../../src/store/executors.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";

test("an upload that somebody is at is left alone, and one that was given up is settled by what is there", async (t) => {
  await using temporary = await temporaryStore();
  const dir = await mkdtemp(join(tmpdir(), "svc-leftovers-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const catalogue = new Catalogue(temporary.store, await currentExecutor(), Date.now, () => undefined);
  const storage = new LocalStorage(dir, process.getuid?.() ?? 0);
  const log = { info: () => undefined, warn: (fields: unknown) => t.fail(JSON.stringify(fields)) } as never;
  const settle = () => settleLeftovers({ storages: { open: () => storage }, catalogue, log });
  const refOf = (createdAtMs: number) => ({
    ...{ storage: "local", appId: "web" },
    name: newArchiveName({ createdAtMs, appId: "web", ownerUid: 0, host: "0123abcd" }),
  });
  const [whole, gone] = [refOf(1), refOf(2)];
  await mkdir(join(dir, "web"), { mode: 0o700 });
  await writeFile(join(dir, "web", whole.name), "all of it");
  for (const ref of [whole, gone]) await catalogue.announce(ref);

  await settle();
  t.is(catalogue.announced().length, 2, "this process is at them");

  for (const ref of [whole, gone]) await catalogue.leave(ref);
  await settle();
  t.deepEqual(catalogue.announced(), []);
  const known = [...catalogue.archives("web").values()];
  t.like(known, [{ name: whole.name, isWhole: true }]);
  t.is(known.length, 1);
  t.deepEqual(await readdir(join(dir, "web")), [whole.name]);
});

test("an upload to a storage that cannot be asked is settled another time", async (t) => {
  await using temporary = await temporaryStore();
  const catalogue = new Catalogue(temporary.store, await currentExecutor(), Date.now, () => undefined);
  const ref = { storage: "far", appId: "web", name: "of web" };
  await catalogue.announce(ref);
  await catalogue.leave(ref);
  const storage = { open: () => Promise.reject(new SvcError("unavailable", "it is far away")) } as never;
  const warned: unknown[] = [];
  const log = { warn: (fields: unknown) => void warned.push(fields) } as never;
  await settleLeftovers({ storages: { open: () => storage }, catalogue, log });
  t.like(catalogue.announced(), [{ ...ref, isWhole: false }]);
  t.like(warned, [{ storage: "far", err: { message: "it is far away" } }]);
});
