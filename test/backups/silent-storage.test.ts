/** A storage that does not respond delays neither a listing nor a backup. */
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import test from "ava";
import { listArchives } from "../../src/backups/archives/archive-list.ts";
import { removeExpired } from "../../src/backups/policies/remove-expired.ts";
import { S3Storage } from "../../src/backups/storages/s3-storage.ts";
import { S3Thread } from "../../src/backups/storages/s3-thread.ts";
import type { Storage } from "../../src/backups/storages/storage.ts";
import type { StorageEntry } from "../../src/backups/storages/storage-list.ts";
import { programs } from "../support/programs.ts";

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
    const { errors } = await listArchives({ storages, catalog, log }, page, caller, deadlineMs);
    t.deepEqual(errors, [{ storage: "far", error: "it did not respond within 0.2 s" }]);
    t.deepEqual(warnings, []);
    const app = { id: "web", ownerUid: 0 };
    t.deepEqual(
      await removeExpired({ storages, catalog, storeId: "00", log }, "far", app, { keep: 1 }, deadlineMs),
      [],
    );
    t.deepEqual(warnings, ["failed to remove old backups"]);
  });
}

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
  };
  const page = { appId: "", storage: "", limit: 10, pageToken: "" };
  const { errors } = await listArchives(options, page, { uid: 0, ownerUid: 0, root: true });
  t.deepEqual(errors, [{ storage: "disk", error: "it cannot be listed; see the daemon's log" }]);
  t.like(logged, [{ storage: "disk", err: { message: "EIO" } }]);
});
