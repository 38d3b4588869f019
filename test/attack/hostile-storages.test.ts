/** Hostile S3 servers: their responses must not stop the daemon, use all of its memory, or affect other storages. */
import { once } from "node:events";
import { setImmediate as nextTurn } from "node:timers/promises";
import { copyFile, mkdtempDisposable, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { listArchives } from "../../src/backups/archives/archive-list.ts";
import { newArchiveName } from "../../src/backups/archives/archive-name.ts";
import type { S3Connection } from "../../src/backups/storages/s3-calls.ts";
import type { StorageEntry } from "../../src/backups/storages/storage-list.ts";
import { S3Storage } from "../../src/backups/storages/s3-storage.ts";
import { S3Thread } from "../../src/backups/storages/s3-thread.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { programs } from "../support/programs.ts";

const rootTest = isRoot ? test : test.skip;
const user = 61_004;
/** An account of every host. */
const owner = 5;
const prefix = "svc";
const name = newArchiveName({ createdAtMs: 0, appId: "web", ownerUid: user, host: "0123abcd" });
const key = { appId: "web", name };

type Respond = (response: ServerResponse, request: IncomingMessage) => void;

async function serve(t: ExecutionContext, respond: Respond): Promise<string> {
  const server = createServer((request, response) => respond(response, request)).listen(0, "127.0.0.1");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function storageAt(t: ExecutionContext, respond: Respond, silenceMs = 20_000): Promise<S3Storage> {
  const thread = new S3Thread(programs.s3Worker);
  t.teardown(() => thread[Symbol.asyncDispose]());
  const connection = {
    ...{
      endpoint: await serve(t, respond),
      bucket: "shared",
      accessKey: "AKTEST0123456789",
      secretKey: "none",
    },
    ...{ region: "", pathStyle: true, ca: "", maxBytesPerSec: undefined, silenceMs },
  };
  return new S3Storage(thread, connection, prefix);
}

function listing(objectKey: string, size: string): string {
  return `<ListBucketResult><Contents><Key>${objectKey}</Key><Size>${size}</Size></Contents></ListBucketResult>`;
}

function sendList(response: ServerResponse, list: string): void {
  response.setHeader("Content-Type", "application/xml");
  response.end(list);
}

for (const size of ["NaN", "1.5", "-5", "1e400", "99999999999999999999"]) {
  test(`a storage that lists an object of ${size} bytes is rejected`, async (t) => {
    const storage = await storageAt(t, (response) => sendList(response, listing(`svc/web/${name}`, size)));
    await t.throwsAsync(storage.list(undefined, AbortSignal.timeout(20_000)), {
      message: /^the server reports .* bytes as the size of an object$/,
    });
  });
}

test("a storage that lists a key of megabytes is rejected", async (t) => {
  const storage = await storageAt(t, (response) => sendList(response, listing("k".repeat(1 << 20), "1")));
  await t.throwsAsync(storage.list(undefined, AbortSignal.timeout(20_000)), {
    message: "the server lists a key of more than 1024 bytes",
  });
});

test("a page that would keep the thread busy for seconds is not parsed", async (t) => {
  const page = `<ListBucketResult>${"&amp;".repeat(1 << 20)}</ListBucketResult>`;
  const storage = await storageAt(t, (response) => sendList(response, page));
  await t.throwsAsync(storage.list(undefined, AbortSignal.timeout(20_000)), {
    message: "the S3 server sent a response that is too large",
  });
});

test("others are served while the longest listing is read", async (t) => {
  const objects = Array.from({ length: 100_000 }, () => ({ key: `svc/web/${name}`, sizeBytes: 1 }));
  const thread = { call: () => Promise.resolve(objects) } as unknown as S3Thread;
  const storage = new S3Storage(thread, {} as S3Connection, prefix);
  const options = {
    storages: {
      all: () => [],
      find: () => ({ name: "far" }) as StorageEntry,
      open: () => storage,
    },
    ...{ catalog: { archives: () => new Map() }, log: { warn: () => undefined }, nodeId: "0123abcd" },
  };
  const page = { appId: "", storage: "far", limit: 10, pageToken: "" };
  const over = new AbortController();
  const listing = listArchives(options, page, { uid: 0, ownerUid: 0, root: true }).finally(() =>
    over.abort(),
  );
  let turns = 0;
  for (; !over.signal.aborted; turns++) await nextTurn();
  t.is((await listing).archives.length, 10);
  t.true(turns > 10, `${turns} turns`);
});

test("an object of more than 2^53 bytes is not opened", async (t) => {
  const storage = await storageAt(t, (response) => {
    response.writeHead(200, { "Content-Length": "18446744073709551615" }).end();
  });
  await t.throwsAsync(storage.open(key), { message: /^the server reports 18446744073709552000 bytes/ });
});

test("a range that never ends is read only to its end", async (t) => {
  t.timeout(20_000);
  const storage = await storageAt(t, (response, { method }) => {
    if (method === "HEAD") return void response.writeHead(200, { "Content-Length": "1000" }).end();
    response.writeHead(206, { "Content-Range": "bytes 0-999/1000" });
    const send = (): void => {
      while (!response.destroyed && response.write(Buffer.alloc(10_000, "a")));
    };
    response.on("drain", send);
    send();
  });
  await using file = await storage.open(key);
  const pieces = await Array.fromAsync(file.read(0, 1_000));
  t.is(Buffer.concat(pieces).toString(), "a".repeat(1_000));
});

test("a response that arrives byte by byte has a deadline", async (t) => {
  t.timeout(30_000);
  const silenceMs = 200;
  const respond: Respond = (response) => {
    response.writeHead(500);
    const timer = setInterval(() => response.write("x"), silenceMs / 4);
    response.on("close", () => clearInterval(timer));
  };
  const storage = await storageAt(t, respond, silenceMs);
  await t.throwsAsync(storage.remove(key), { message: "the S3 server did not respond in time" });
});

test("a server may send blanks for long until a large upload is complete", async (t) => {
  t.timeout(60_000);
  const silenceMs = 400;
  const sizeBytes = (16 << 20) + 1;
  const respond: Respond = (response, request) => {
    const { method, url = "" } = request;
    if (method === "HEAD") return void response.writeHead(200, { "Content-Length": sizeBytes }).end();
    if (method === "PUT")
      return void request.resume().once("end", () => response.writeHead(200, { ETag: '"part"' }).end());
    const started = "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>";
    if (url.includes("uploads")) return void response.end(started);
    const timer = setInterval(() => response.write(" "), silenceMs / 4);
    setTimeout(() => {
      clearInterval(timer);
      response.end("<CompleteMultipartUploadResult/>");
    }, silenceMs * 6);
  };
  const storage = await storageAt(t, respond, silenceMs);
  await using dir = await mkdtempDisposable(join(tmpdir(), "svc-s3-"));
  const file = join(dir.path, "archive");
  await writeFile(file, Buffer.alloc(sizeBytes));
  await t.notThrowsAsync(storage.put(key, file, {}));
});

rootTest(`a storage that lies about sizes does not hide the others from users${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  const endpoint = await serve(t, (response) => sendList(response, listing(`svc/web/${name}`, "NaN")));
  const location = { endpoint, bucket: "shared", accessKey: "AKTEST0123456789", secretKey: "none", prefix };
  await daemon.client(BackupService).upsertBackupStorage({
    name: "offsite",
    location: { case: "s3", value: { ...location, pathStyle: true } },
  });
  await using connection = await daemon.as(user);
  const { backups, errors } = await connection.client(BackupService).listBackups({});
  t.deepEqual(backups, []);
  t.deepEqual(
    errors.map(({ storage, error }) => ({ storage, error })),
    [{ storage: "offsite", error: "the server reports NaN bytes as the size of an object" }],
  );
});

rootTest(`a storage that returns an older archive for a newer one is detected${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  await using connection = await daemon.as(owner);
  const backups = connection.client(BackupService);
  await writePackage(join(daemon.dir, "package"), await freePort());
  await connection.client(AppService).installApp({ spec: join(daemon.dir, "package") });
  const make = async (): Promise<string> =>
    (await backups.createBackup({ appId: "web" })).results[0]?.name ?? "";
  const [older, newer] = [await make(), await make()];
  const stored = join(daemon.storeDir, "backups/web");
  await copyFile(join(stored, older), join(stored, newer));
  const ref = { appId: "web", storage: "local" };
  t.like(await errorOf(backups.restoreBackup({ ...ref, name: newer })), { reason: "not_found" });
  t.like(await errorOf(daemon.client(BackupService).verifyBackup({ ...ref, name: newer })), {
    reason: "archive_damaged",
  });
  t.is((await backups.restoreBackup({ ...ref, name: older })).appId, "web");
});
