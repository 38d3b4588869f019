/** The limit of a user's archives in a storage, and how often buckets are listed for it. */
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { BackupQuota } from "../../src/backups/policies/backup-quota.ts";
import { SvcError } from "../../src/errors.ts";
import { newArchiveName } from "../../src/backups/archives/archive-name.ts";
import { ArchiveCatalog } from "../../src/backups/archives/archive-catalog.ts";
import { settleLeftovers } from "../../src/backups/archives/leftovers.ts";
import { LocalStorage } from "../../src/backups/storages/local-storage.ts";
import { currentExecutor } from "../../src/store/executors.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";

const uid = 7;
const most = 10_000;

/** A storage with this many archives of one byte each. */
function quotaOf(kind: "local" | "s3", count: number, maxBytesPerUser = 0) {
  const state = {
    archives: Array.from({ length: count }, () => ({ ownerUid: uid, sizeBytes: 1 })),
    lists: 0,
  };
  const clock = { nowMs: 0 };
  const list = (): Promise<unknown> => {
    state.lists += 1;
    return Promise.resolve(state.archives);
  };
  const storages = { find: () => ({ location: { kind } }), open: () => ({ list }) } as never;
  return { state, clock, quota: new BackupQuota({ storages, maxBytesPerUser, now: () => clock.nowMs }) };
}

const tooMany = { instanceOf: SvcError, message: /has 10000 backups in the storage "x", and may have 10000/ };

test("a user has at most 10,000 archives in a directory, including pending ones", async (t) => {
  const { quota, state } = quotaOf("local", most - 1);
  const one = await quota.open(uid, ["x"]);
  await t.throwsAsync(quota.open(uid, ["x"]), { instanceOf: SvcError });
  await t.notThrowsAsync(quota.open(undefined, ["x"]), "root has as many as it likes");
  one[Symbol.dispose]();
  state.archives.push({ ownerUid: uid, sizeBytes: 1 });
  await t.throwsAsync(quota.open(uid, ["x"]), tooMany);
  await t.notThrowsAsync(quota.open(uid + 1, ["x"]));
});

test("a user has at most 10,000 archives in a bucket", async (t) => {
  const { quota, state } = quotaOf("s3", most);
  using room = await quota.open(uid, ["x"]);
  await t.throwsAsync(room.requireTaken("x"), tooMany);
  state.archives.pop();
  await t.notThrowsAsync(room.requireTaken("x"));
});

test("a bucket is listed once per minute, and again before anybody is rejected", async (t) => {
  const { quota, state, clock } = quotaOf("s3", 0, 100);
  const put = async (bytes: number): Promise<void> => {
    using room = await quota.open(uid, ["x"]);
    await room.take(bytes);
    await room.requireTaken("x");
    state.archives.push({ ownerUid: uid, sizeBytes: bytes });
  };
  await put(40);
  await put(40);
  t.is(state.lists, 1);
  await t.throwsAsync(put(40), {
    message: /has 80 bytes of backups in the storage "x".*max_backup_bytes_per_user \(100\)/,
  });
  t.is(state.lists, 2);
  state.archives.pop();
  await put(40);
  t.is(state.lists, 3);
  clock.nowMs += 60_000;
  await put(1);
  t.is(state.lists, 4);
});

// Cleanup of unconfirmed uploads.

test("an upload in progress is not touched, and an abandoned one is settled by what exists", async (t) => {
  await using temporary = await temporaryStore();
  const dir = await mkdtemp(join(tmpdir(), "svc-leftovers-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const catalog = new ArchiveCatalog(temporary.store, await currentExecutor(), Date.now, () => undefined);
  const storage = new LocalStorage("local", dir, process.getuid?.() ?? 0);
  const log = { info: () => undefined, warn: (fields: unknown) => t.fail(JSON.stringify(fields)) } as never;
  const settle = () => settleLeftovers({ storages: { open: () => storage }, catalog, log });
  const refOf = (createdAtMs: number) => ({
    ...{ storage: "local", appId: "web" },
    name: newArchiveName({ createdAtMs, appId: "web", ownerUid: 0, host: "0123abcd" }),
  });
  const [whole, gone] = [refOf(1), refOf(2)];
  await mkdir(join(dir, "web"), { mode: 0o700 });
  await writeFile(join(dir, "web", whole.name), "all of it");
  for (const ref of [whole, gone]) await catalog.announce(ref, null);

  await settle();
  t.is(catalog.announced().length, 2, "this process is uploading them");

  for (const ref of [whole, gone]) await catalog.leave(ref);
  await settle();
  t.deepEqual(catalog.announced(), []);
  const known = [...catalog.archives("web").values()];
  t.like(known, [{ name: whole.name, isWhole: true }]);
  t.is(known.length, 1);
  t.deepEqual(await readdir(join(dir, "web")), [whole.name]);
});

test("an upload to an unavailable storage is settled later", async (t) => {
  await using temporary = await temporaryStore();
  const catalog = new ArchiveCatalog(temporary.store, await currentExecutor(), Date.now, () => undefined);
  const ref = { storage: "far", appId: "web", name: "of web" };
  await catalog.announce(ref, null);
  await catalog.leave(ref);
  const storage = { open: () => Promise.reject(new SvcError("unavailable", "it is far away")) } as never;
  const warned: unknown[] = [];
  const log = { warn: (fields: unknown) => void warned.push(fields) } as never;
  await settleLeftovers({ storages: { open: () => storage }, catalog, log });
  t.like(catalog.announced(), [{ ...ref, isWhole: false }]);
  t.like(warned, [{ storage: "far", err: { message: "it is far away" } }]);
});
