/** Archives in a bucket of a real S3 server, also over a connection that fails in each possible way. */
import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { newArchiveName } from "../../../src/backups/archives/archive-name.ts";
import type { S3Connection } from "../../../src/backups/storages/s3-calls.ts";
import { S3Storage } from "../../../src/backups/storages/s3-storage.ts";
import { S3Thread } from "../../../src/backups/storages/s3-thread.ts";
import { eventually } from "../../support/eventually.ts";
import { startFaultProxy, type Fault, type SeenRequest } from "../../support/fault-proxy.ts";
import { hasS3Server, needsS3Server, startS3Server, type TlsS3Server } from "../../support/s3-server.ts";
import { programs } from "../../support/programs.ts";

const s3Test = hasS3Server ? test : test.skip;
const mib = 1 << 20;
const prefix = "hosts/one";

interface Setup extends AsyncDisposable {
  readonly place: S3Connection;
  readonly thread: S3Thread;
  readonly bucketDir: string;
  readonly port: number;
  /** A file of random bytes. */
  file(sizeBytes: number): Promise<{ path: string; bytes: Buffer }>;
}

/** One server and one thread for all tests; each test has its own bucket. */
const shared = new AsyncDisposableStack();
let common: { readonly server: TlsS3Server; readonly thread: S3Thread } | undefined;
if (hasS3Server) {
  test.before(async () => {
    common = {
      server: shared.use(await startS3Server()),
      thread: shared.use(new S3Thread(programs.s3Worker)),
    };
  });
  test.after.always(() => shared.disposeAsync());
}

async function setUp(options: { tls?: boolean } = {}): Promise<Setup> {
  assert.ok(common);
  const stack = new AsyncDisposableStack();
  const server = options.tls === true ? stack.use(await startS3Server(options)) : common.server;
  const bucket = randomUUID();
  const bucketDir = join(server.dir, bucket);
  await mkdir(bucketDir);
  const dir = await mkdtemp(join(tmpdir(), "svc-s3-test-"));
  stack.defer(() => rm(dir, { recursive: true }));
  const { endpoint, accessKey, secretKey, port, certificate } = server;
  return {
    place: {
      ...{ endpoint, bucket, accessKey, secretKey },
      ...{ region: "", pathStyle: true, ca: certificate, maxBytesPerSec: undefined, silenceMs: 4_000 },
    },
    ...{ thread: common.thread, port, bucketDir },
    file: async (sizeBytes) => {
      const bytes = randomBytes(sizeBytes);
      const path = join(dir, randomUUID());
      await writeFile(path, bytes);
      return { path, bytes };
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

function newKey(createdAtMs = Date.now()) {
  return { appId: "web", name: newArchiveName({ createdAtMs, appId: "web", ownerUid: 7, host: "0123abcd" }) };
}

async function contentOf(storage: S3Storage, key: { appId: string; name: string }, start = 0, end?: number) {
  await using file = await storage.open(key);
  return Buffer.concat(await Array.fromAsync(file.read(start, end ?? file.sizeBytes)));
}

/** Uploads that are still open. */
async function openUploads({ bucketDir }: Setup): Promise<string[]> {
  const names = await readdir(join(bucketDir, ".sgwtmp/multipart"), { recursive: true }).catch(() => []);
  return names;
}

const isPart = ({ method, url }: SeenRequest): boolean => method === "PUT" && url.includes("partNumber=");
const isRead = ({ method, url }: SeenRequest): boolean => method === "GET" && !url.includes("list-type");

/** Injects a fault into the first `count` requests of a kind. */
function first(count: number, isAffected: (request: SeenRequest) => boolean, fault: Fault) {
  let left = count;
  return (request: SeenRequest) => (isAffected(request) && left-- > 0 ? fault : undefined);
}

for (const [what, sizeBytes] of [
  ["nothing", 0],
  ["one piece", 1000],
  ["a part exactly", 8 * mib],
  ["parts", 20 * mib + 17],
] as const) {
  s3Test(`a stored archive is identical to the last byte: ${what}${needsS3Server}`, async (t) => {
    await using s3 = await setUp();
    const storage = new S3Storage(s3.thread, s3.place, prefix);
    const { path, bytes } = await s3.file(sizeBytes);
    const key = newKey();
    const progress: number[] = [];
    await storage.put(key, path, { onProgress: (done) => progress.push(done) });
    t.is(progress.at(-1), sizeBytes);
    const [listed, ...others] = await storage.list(undefined, AbortSignal.timeout(30_000));
    t.like(listed, { ...key, ownerUid: 7, sizeBytes });
    t.deepEqual(others, []);
    t.true(bytes.equals(await contentOf(storage, key)));
    if (sizeBytes > 100) t.true(bytes.subarray(50, 99).equals(await contentOf(storage, key, 50, 99)));
    t.deepEqual(await openUploads(s3), []);
    await storage.remove(key);
    await storage.remove(key);
    t.like(await t.throwsAsync(storage.open(key)), { reason: "not_found" });
  });
}

s3Test(`a listing of 2,500 objects is complete and contains only archives${needsS3Server}`, async (t) => {
  await using s3 = await setUp();
  const storage = new S3Storage(s3.thread, s3.place, prefix);
  const dir = join(s3.bucketDir, prefix, "web");
  await mkdir(dir, { recursive: true });
  const names = Array.from({ length: 2_500 }, (_, index) => newKey(1_700_000_000_000 + index).name);
  for (const name of names) await writeFile(join(dir, name), "x");
  await writeFile(join(dir, "notes.txt"), "x");
  await writeFile(join(s3.bucketDir, prefix, names[0] ?? ""), "x");
  const listed = await storage.list("web", AbortSignal.timeout(60_000));
  t.deepEqual(listed.map(({ name }) => name).toSorted(), names.toSorted());
  t.deepEqual(await storage.list("we", AbortSignal.timeout(60_000)), []);
});

const passing: [string, (request: SeenRequest) => boolean, Fault][] = [
  ["a reset before a part", isPart, { kind: "reset" }],
  ["503 SlowDown for a part", isPart, { kind: "answer", status: 503, code: "SlowDown" }],
  ["a stall in the middle of a part", isPart, { kind: "stall" }],
  ["a part's answer that is lost", isPart, { kind: "lose-answer" }],
  [
    "the end's answer that is lost",
    ({ method, url }) => method === "POST" && url.includes("uploadId="),
    { kind: "lose-answer" },
  ],
];
for (const [what, isAffected, fault] of passing) {
  s3Test(`an upload succeeds despite ${what}${needsS3Server}`, async (t) => {
    await using s3 = await setUp();
    await using proxy = await startFaultProxy(s3.port);
    proxy.fault = first(1, isAffected, fault);
    const storage = new S3Storage(s3.thread, { ...s3.place, endpoint: proxy.endpoint }, prefix);
    const { path, bytes } = await s3.file(17 * mib);
    const key = newKey();
    await storage.put(key, path, {});
    t.true(bytes.equals(await contentOf(storage, key)));
    t.deepEqual(await openUploads(s3), []);
  });
}

for (const [what, fault] of [
  ["a reset", { kind: "reset", afterBytes: 3 * mib }],
  ["a stall", { kind: "stall", afterBytes: 3 * mib }],
  ["503 SlowDown", { kind: "answer", status: 503, code: "SlowDown" }],
] as const satisfies readonly [string, Fault][]) {
  s3Test(`a download continues at its position after ${what}${needsS3Server}`, async (t) => {
    await using s3 = await setUp();
    await using proxy = await startFaultProxy(s3.port);
    const storage = new S3Storage(s3.thread, { ...s3.place, endpoint: proxy.endpoint }, prefix);
    const { path, bytes } = await s3.file(12 * mib);
    const key = newKey();
    await storage.put(key, path, {});
    proxy.fault = first(2, isRead, fault);
    t.true(bytes.equals(await contentOf(storage, key)));
    const starts = proxy.seen.filter(isRead).map(({ range }) => Number(/^bytes=(\d+)-/.exec(range)?.[1]));
    t.is(starts.length, 3);
    if ("afterBytes" in fault) {
      t.true(
        (starts[1] ?? 0) > 0 && (starts[2] ?? 0) > (starts[1] ?? 0),
        "received bytes are not requested again",
      );
    }
  });
}

const lasting: [string, Fault, { reason: string; message: RegExp }][] = [
  ["is cut", { kind: "reset" }, { reason: "unavailable", message: /cannot be reached \(ECONNRESET\)/ }],
  ["says nothing", { kind: "stall" }, { reason: "deadline_exceeded", message: /did not respond in time/ }],
  [
    "has no room",
    { kind: "answer", status: 503, code: "SlowDown" },
    { reason: "unavailable", message: /is overloaded/ },
  ],
  [
    "refuses",
    { kind: "answer", status: 403, code: "AccessDenied" },
    { reason: "denied", message: /denies access to the bucket/ },
  ],
  [
    "takes this host's clock for wrong",
    { kind: "answer", status: 403, code: "RequestTimeTooSkewed" },
    { reason: "denied", message: /^the clocks of this host and of .* differ too much/ },
  ],
  [
    "has the bucket no more",
    { kind: "answer", status: 404, code: "NoSuchBucket" },
    { reason: "denied", message: /^the bucket ".*" does not exist/ },
  ],
];
for (const [what, fault, error] of lasting) {
  s3Test(`an upload fails and leaves nothing if the server ${what}${needsS3Server}`, async (t) => {
    await using s3 = await setUp();
    await using proxy = await startFaultProxy(s3.port);
    const place = { ...s3.place, endpoint: proxy.endpoint, silenceMs: 2_000 };
    const storage = new S3Storage(s3.thread, place, prefix);
    const { path } = await s3.file(17 * mib);
    proxy.fault = (request) => (isPart(request) && request.url.includes("partNumber=2") ? fault : undefined);
    const key = newKey();
    const thrown = await t.throwsAsync(storage.put(key, path, {}), { message: error.message });
    t.like(thrown, { reason: error.reason });
    t.deepEqual(await storage.list("web", AbortSignal.timeout(30_000)), []);
    t.deepEqual(await openUploads(s3), []);
  });
}

s3Test(`an upload fails if the server confirms it but has no object${needsS3Server}`, async (t) => {
  await using s3 = await setUp();
  await using proxy = await startFaultProxy(s3.port);
  proxy.fault = ({ method, url }) =>
    method === "POST" && url.includes("uploadId=")
      ? { kind: "answer", status: 404, code: "NoSuchUpload" }
      : undefined;
  const storage = new S3Storage(s3.thread, { ...s3.place, endpoint: proxy.endpoint }, prefix);
  const { path } = await s3.file(17 * mib);
  t.like(await t.throwsAsync(storage.put(newKey(), path, {}), { message: /does not list it/ }), {
    reason: "unavailable",
  });
});

s3Test(`no part is uploaded after an upload was aborted${needsS3Server}`, async (t) => {
  await using s3 = await setUp();
  await using proxy = await startFaultProxy(s3.port);
  const storage = new S3Storage(s3.thread, { ...s3.place, endpoint: proxy.endpoint }, prefix);
  const { path } = await s3.file(33 * mib);
  const isPartOf = ({ url }: SeenRequest, number: number) => url.includes(`partNumber=${number}&`);
  proxy.fault = (request) => {
    if (!isPart(request)) return undefined;
    // The second is rejected while the first is being sent.
    if (isPartOf(request, 2)) return { kind: "answer", status: 403, code: "AccessDenied" };
    return { kind: "late", ms: 1_000 };
  };
  let doneMs = 0;
  const onProgress = () => (doneMs = performance.now());
  t.like(await t.throwsAsync(storage.put(newKey(), path, { onProgress })), { reason: "denied" });
  t.true(doneMs > 0, "the abort waits for the first part");
  const kinds = proxy.seen.flatMap(({ method, url }) =>
    url.includes("uploadId=") ? [/partNumber=(\d+)/.exec(url)?.[1] ?? method] : [],
  );
  t.deepEqual(kinds.slice(0, 2).toSorted(), ["1", "2"], "no part starts after the abort");
  // The upload is aborted until the server no longer lists it.
  t.deepEqual(kinds.slice(2), ["DELETE", "DELETE"]);
  t.deepEqual(await openUploads(s3), []);
});

s3Test(`a canceled upload stops at once and leaves nothing${needsS3Server}`, async (t) => {
  await using s3 = await setUp();
  await using proxy = await startFaultProxy(s3.port);
  const storage = new S3Storage(
    s3.thread,
    { ...s3.place, endpoint: proxy.endpoint, silenceMs: 60_000 },
    prefix,
  );
  const { path } = await s3.file(17 * mib);
  const ending = new AbortController();
  proxy.fault = (request) => {
    if (!isPart(request)) return undefined;
    ending.abort();
    return { kind: "stall" };
  };
  t.like(await t.throwsAsync(storage.put(newKey(), path, { signal: ending.signal })), { reason: "canceled" });
  await eventually(async () => assert.deepEqual(await openUploads(s3), []));
  t.pass();
});

s3Test(`an upload left by a dead process is aborted by its name${needsS3Server}`, async (t) => {
  await using s3 = await setUp();
  await using proxy = await startFaultProxy(s3.port);
  const place = { ...s3.place, endpoint: proxy.endpoint, silenceMs: 60_000 };
  const { path } = await s3.file(17 * mib);
  const key = newKey();
  {
    await using thread = new S3Thread(programs.s3Worker);
    const stalled = Promise.withResolvers<undefined>();
    proxy.fault = (request) => {
      if (!isPart(request)) return undefined;
      stalled.resolve(undefined);
      return { kind: "stall" };
    };
    const putting = new S3Storage(thread, place, prefix).put(key, path, {});
    putting.catch(() => undefined);
    await stalled.promise;
  }
  proxy.fault = () => undefined;
  t.not((await openUploads(s3)).length, 0);
  const storage = new S3Storage(s3.thread, place, prefix);
  await storage.abandon(newKey());
  t.not((await openUploads(s3)).length, 0, "another's stays");
  await storage.abandon(key);
  t.deepEqual(await openUploads(s3), []);
});

for (const [what, change, message] of [
  ["another secret", { secretKey: "wrong-secret-of-nobody" }, /does not accept the credentials/],
  ["an unknown key", { accessKey: "AKNOBODY00000000" }, /access key/],
  ["a bucket that is not there", { bucket: "gone" }, /bucket "gone" does not exist/],
  ["a port where nobody listens", { endpoint: "http://127.0.0.1:9" }, /cannot be reached \(ECONNREFUSED\)/],
] as const satisfies readonly [string, Partial<S3Connection>, RegExp][]) {
  s3Test(`an error names its cause without secrets: ${what}${needsS3Server}`, async (t) => {
    await using s3 = await setUp();
    const storage = new S3Storage(s3.thread, { ...s3.place, ...change }, "");
    const listing = await t.throwsAsync(storage.list(undefined, AbortSignal.timeout(60_000)), { message });
    const { path } = await s3.file(10);
    const putting = await t.throwsAsync(storage.put(newKey(), path, {}), { message });
    for (const { message: text } of [listing, putting]) {
      t.false(text.includes(s3.place.secretKey) || text.includes("wrong-secret-of-nobody"));
      t.false(text.includes(s3.place.accessKey) || text.includes("AKNOBODY00000000"));
      t.false(text.includes("127.0.0.1"), "the location");
    }
  });
}

s3Test(
  `a server with an unknown certificate requires its certificate authority${needsS3Server}`,
  async (t) => {
    await using s3 = await setUp({ tls: true });
    const { path, bytes } = await s3.file(100);
    const key = newKey();
    const without = new S3Storage(s3.thread, { ...s3.place, ca: "" }, "");
    await t.throwsAsync(without.put(key, path, {}), { message: /does not trust/ });
    const storage = new S3Storage(s3.thread, s3.place, "");
    await storage.put(key, path, {});
    t.true(bytes.equals(await contentOf(storage, key)));
  },
);

s3Test(`transfers respect their rate limit${needsS3Server}`, async (t) => {
  await using s3 = await setUp();
  const storage = new S3Storage(s3.thread, { ...s3.place, maxBytesPerSec: 4 * mib }, "");
  const { path } = await s3.file(20 * mib);
  const key = newKey();
  const startMs = performance.now();
  await storage.put(key, path, {});
  // The last part waits until the earlier ones have used their time.
  t.true(performance.now() - startMs >= 4_000 - 50);
});

s3Test(`the thread exits when it is idle${needsS3Server}`, async (t) => {
  await using s3 = await setUp();
  await using thread = new S3Thread(programs.s3Worker, 100);
  t.false(thread.isRunning);
  await new S3Storage(thread, s3.place, "").list(undefined, AbortSignal.timeout(30_000));
  await eventually(() => assert.ok(!thread.isRunning));
});

test("a bucket with too many objects is rejected, even if the server never ends the listing", async (t) => {
  t.timeout(60_000);
  let pages = 0;
  const server = createServer((_request, response) => {
    const page = pages++;
    const objects = Array.from(
      { length: 1_000 },
      (_, at) => `<Contents><Key>${prefix}/web/${page}-${at}</Key><Size>1</Size></Contents>`,
    );
    response.setHeader("Content-Type", "application/xml");
    response.end(
      `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>${page}</NextContinuationToken>` +
        `${objects.join("")}</ListBucketResult>`,
    );
  }).listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  await using thread = new S3Thread(programs.s3Worker);
  const storage = new S3Storage(thread, connectionTo(server), prefix);
  await t.throwsAsync(storage.list(undefined, AbortSignal.timeout(50_000)), {
    message: /more than 100000 objects/,
  });
  t.is(pages, 101);
});

for (const status of [200, 400]) {
  test(`a response that never ends is rejected (status ${status})`, async (t) => {
    t.timeout(60_000);
    let sentBytes = 0;
    const chunk = Buffer.alloc(mib, "a");
    const server = createServer((_request, response) => {
      response.writeHead(status, { "Content-Type": "application/xml" });
      response.write("<ListBucketResult><Prefix>");
      const send = (): void => {
        while (!response.destroyed && response.write(chunk)) sentBytes += chunk.length;
      };
      response.on("drain", send);
      send();
    }).listen(0, "127.0.0.1");
    t.teardown(() => {
      server.closeAllConnections();
      server.close();
    });
    await once(server, "listening");
    await using thread = new S3Thread(programs.s3Worker);
    const storage = new S3Storage(thread, connectionTo(server), prefix);
    await t.throwsAsync(storage.list(undefined, AbortSignal.timeout(50_000)), {
      message: "the S3 server sent a response that is too large",
    });
    t.true(sentBytes < 64 * mib, `the server sent ${sentBytes} bytes`);
  });
}

function connectionTo(server: Server): S3Connection {
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    ...{ endpoint, bucket: "shared", accessKey: "AKTEST0123456789", secretKey: "none-of-the-words" },
    ...{ region: "", pathStyle: true, ca: "", maxBytesPerSec: undefined, silenceMs: 4_000 },
  };
}
