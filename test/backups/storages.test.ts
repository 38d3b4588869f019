/** Storages of archives: ranges, failures, timeouts, and the limit of a user's archives. */
import { once } from "node:events";
import { mkdtemp, readdir, rm, truncate, writeFile, mkdir } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { ArchiveCatalog, type CatalogedArchive } from "../../src/backups/archives/archive-catalog.ts";
import { listArchives } from "../../src/backups/archives/archive-list.ts";
import { newArchiveName, parseArchiveName } from "../../src/backups/archives/archive-name.ts";
import { settleLeftovers } from "../../src/backups/archives/leftovers.ts";
import { BackupQuota } from "../../src/backups/policies/backup-quota.ts";
import { removeExpired } from "../../src/backups/policies/remove-expired.ts";
import { LocalStorage, openLocalFile } from "../../src/backups/storages/local-storage.ts";
import type { S3Connection } from "../../src/backups/storages/s3-calls.ts";
import { failureOf } from "../../src/backups/storages/s3-failure.ts";
import { S3Storage } from "../../src/backups/storages/s3-storage.ts";
import { S3Thread } from "../../src/backups/storages/s3-thread.ts";
import type { StorageEntry } from "../../src/backups/storages/storage-list.ts";
import type { Storage } from "../../src/backups/storages/storage.ts";
import { SvcError } from "../../src/errors.ts";
import { currentExecutor } from "../../src/store/executors.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";
import { programs } from "../support/programs.ts";

// Archives on a local disk.

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

// A storage that does not respond delays neither a listing nor a backup.

const deadlineMs = 200;
const never = new Promise<never>(() => undefined);

/** As on a disk that hangs: nothing can be canceled. */
const hung = { list: () => never, remove: () => never } as unknown as Storage;

/** A bucket on a server that accepts connections and does not respond. */
async function silentBucket(stack: AsyncDisposableStack): Promise<Storage> {
  const server = createServer().listen(0, "127.0.0.1");
  stack.defer(() => void server.close());
  await once(server, "listening");
  const thread = stack.use(new S3Thread(programs.s3Worker));
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const place = {
    ...{ endpoint, bucket: "shared", accessKey: "AKTEST0123456789", secretKey: "none-of-the-words" },
    ...{ region: "", pathStyle: true, ca: "", maxBytesPerSec: undefined, silenceMs: 60_000 },
  };
  return new S3Storage(thread, place, "");
}

for (const [what, open] of [
  ["a bucket", silentBucket],
  ["a directory", () => Promise.resolve(hung)],
] as const) {
  test(`${what} that does not respond times out`, async (t) => {
    t.timeout(20_000);
    await using stack = new AsyncDisposableStack();
    const storage = await open(stack);
    const warnings: string[] = [];
    const log = { warn: (...[, text]: unknown[]) => void warnings.push(String(text)) } as never;
    const storages = {
      all: () => [{ name: "far" }] as StorageEntry[],
      find: () => ({ name: "far" }) as StorageEntry,
      open: () => storage,
    };
    const catalog = { archives: () => new Map(), forget: () => Promise.resolve() };
    const page = { appId: "", storage: "", limit: 10, pageToken: "" };
    const caller = { uid: 0, ownerUid: 0, root: true };
    const { errors } = await listArchives({ storages, catalog, log, nodeId: "00" }, page, caller, deadlineMs);
    t.deepEqual(errors, [{ storage: "far", error: "the storage did not respond within 0.2 s" }]);
    t.deepEqual(warnings, []);
    const app = { id: "web", ownerUid: 0 };
    const made = { storage: "far", name: "" };
    t.deepEqual(
      await removeExpired({ storages, catalog, storeId: "00", log }, made, app, { keep: 1 }, deadlineMs),
      {
        removed: [],
        warnings: [
          'old backups of "web" on storage "far" were not removed: the storage did not respond within 0.2 s',
        ],
      },
    );
    t.deepEqual(warnings, ["failed to remove old backups"]);
  });
}

test("a backup that was made while the clock was ahead does not expire the next ones", async (t) => {
  const named = (createdAtMs: number) =>
    newArchiveName({ createdAtMs, appId: "web", ownerUid: 0, host: "0123abcd" });
  const [old, made, ahead] = [named(1_000), named(2_000), named(Date.UTC(2099, 0))] as const;
  const removed: string[] = [];
  const storages = {
    open: () =>
      ({
        list: () =>
          Promise.resolve(
            [old, made, ahead].map((name) => ({ ...parseArchiveName(name), name, sizeBytes: 1 })),
          ),
        remove: ({ name }: { name: string }) => Promise.resolve(void removed.push(name)),
      }) as unknown as Storage,
  };
  const rows = [old, made, ahead].map(
    (name) => [`far/${name}`, { isComplete: true } as CatalogedArchive] as const,
  );
  const catalog = { archives: () => new Map(rows), forget: () => Promise.resolve() };
  const options = { storages, catalog, storeId: "0123abcd", log: { warn: () => undefined } };
  await removeExpired(options, { storage: "far", name: made }, { id: "web", ownerUid: 0 }, { keep: 1 });
  t.deepEqual(removed, [old]);
});

test("the reason why a storage cannot be listed is in the log, even if it is not shown to users", async (t) => {
  const logged: unknown[] = [];
  const broken = { list: () => Promise.reject(new Error("EIO")) } as unknown as Storage;
  const options = {
    storages: {
      all: () => [{ name: "disk" }] as StorageEntry[],
      find: () => ({ name: "disk" }) as StorageEntry,
      open: () => broken,
    },
    catalog: { archives: () => new Map() },
    log: { warn: (fields: unknown) => void logged.push(fields) },
    nodeId: "00",
  };
  const page = { appId: "", storage: "", limit: 10, pageToken: "" };
  const { errors } = await listArchives(options, page, { uid: 0, ownerUid: 0, root: true });
  t.deepEqual(errors, [{ storage: "disk", error: "the storage cannot be listed; see the daemon's log" }]);
  t.like(logged, [{ storage: "disk", err: { message: "EIO" } }]);
});

const place: S3Connection = {
  ...{ endpoint: "https://s3.example.org:9000", region: "", bucket: "backups", ca: "" },
  ...{ accessKey: "AKTEST0123456789", secretKey: "none-of-the-words", pathStyle: true },
  ...{ maxBytesPerSec: undefined, silenceMs: 60_000 },
};

/** Server responses that quote the request. */
const quoting = (text: string): Error =>
  Object.assign(new Error(text), { name: "AccessDenied", $metadata: { httpStatusCode: 403 } });

for (const [what, text] of [
  ["the secret", place.secretKey],
  ["the access key", place.accessKey],
  ["the endpoint", place.endpoint],
  ["the host", "s3.example.org"],
] as const) {
  test(`a server's response that quotes ${what} is not repeated in the error`, (t) => {
    for (let before = 0; before < 320; before++) {
      const { reason, message } = failureOf(quoting(`${"x".repeat(before)}${text} was sent`), place);
      t.is(reason, "denied");
      // A response that is truncated within the text must not be quoted either.
      if (message.includes(text.slice(0, 6))) t.fail(message);
    }
  });
}

// The limit of a user's archives in a storage, and how often buckets are listed for it.

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
  t.is(catalog.unconfirmed().length, 2, "this process is uploading them");

  for (const ref of [whole, gone]) await catalog.leave(ref);
  await settle();
  t.deepEqual(catalog.unconfirmed(), []);
  const known = [...catalog.archives("web").values()];
  t.like(known, [{ name: whole.name, isComplete: true }]);
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
  t.like(catalog.unconfirmed(), [{ ...ref, isComplete: false }]);
  t.like(warned, [{ storage: "far", err: { message: "it is far away" } }]);
});
