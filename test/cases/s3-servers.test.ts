/** S3 servers that differ from Amazon's: lists without tokens for the next page, and reads without ranges. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import test, { type ExecutionContext } from "ava";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { S3Bucket } from "../../src/backups/storages/s3-bucket.ts";
import type { S3Connection } from "../../src/backups/storages/s3-calls.ts";
import { PartHashes } from "../../src/backups/storages/part-hashes.ts";

interface Quirks {
  /** Lists have no token for the next page, as in version 1 of the call. */
  readonly lacksTokens?: boolean;
  /** Only the first version of the call continues a list. */
  readonly isOld?: boolean;
  /** Lists start at the beginning, whatever the request asks for. */
  readonly repeatsFirstPage?: boolean;
  readonly ignoresRanges?: boolean;
  readonly sendsEmptyPages?: boolean;
}

const pageSize = 2;
const newDaemon = sharedDaemon();

/** A bucket in memory that accepts every signature. */
async function startServer(t: ExecutionContext, quirks: Quirks): Promise<S3Bucket> {
  const bucket = new S3Bucket(await listen(t, quirks), new PartHashes());
  t.teardown(() => bucket[Symbol.dispose]());
  return bucket;
}

async function listen(t: ExecutionContext, quirks: Quirks): Promise<S3Connection> {
  const objects = new Map<string, Buffer>();
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://localhost");
    const key = decodeURIComponent(pathname.slice("/bucket/".length));
    const object = objects.get(key);
    if (request.method === "PUT") {
      objects.set(key, await buffer(request));
      response.end();
    } else if (request.method === "DELETE") {
      objects.delete(key);
      response.writeHead(204).end();
    } else if (key === "") {
      response.end(listing([...objects.keys()].toSorted(), searchParams, quirks));
    } else if (object === undefined) {
      response.writeHead(404).end();
    } else {
      const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
      const isPart = start !== undefined && quirks.ignoresRanges !== true;
      const body = isPart ? object.subarray(Number(start), Number(end) + 1) : object;
      response.writeHead(isPart ? 206 : 200, {
        "content-length": body.length,
        ...(isPart && { "content-range": `bytes ${start}-${end}/${object.length}` }),
      });
      response.end(request.method === "HEAD" ? undefined : body);
    }
  };
  const server = createServer((request, response) => void respond(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    region: "",
    bucket: "bucket",
    accessKey: "a",
    secretKey: "b",
    pathStyle: true,
    ca: "",
    maxBytesPerSec: undefined,
    silenceMs: 10_000,
  };
}

function listing(keys: readonly string[], parameters: URLSearchParams, quirks: Quirks): string {
  if (quirks.sendsEmptyPages === true)
    return "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>a</NextContinuationToken></ListBucketResult>";
  const names = quirks.isOld === true ? ["marker"] : ["continuation-token", "start-after"];
  const after =
    quirks.repeatsFirstPage === true ? "" : (names.map((name) => parameters.get(name)).find(Boolean) ?? "");
  const rest = keys.filter((key) => key > after && key.startsWith(parameters.get("prefix") ?? ""));
  const page = rest.slice(0, pageSize);
  const isCut = rest.length > page.length;
  const hasToken =
    isCut && quirks.lacksTokens !== true && quirks.repeatsFirstPage !== true && quirks.isOld !== true;
  const token = hasToken ? `<NextContinuationToken>${page.at(-1)}</NextContinuationToken>` : "";
  const contents = page.map((key) => `<Contents><Key>${key}</Key><Size>1</Size></Contents>`).join("");
  return `<ListBucketResult><IsTruncated>${isCut}</IsTruncated>${token}${contents}</ListBucketResult>`;
}

async function put(t: ExecutionContext, bucket: S3Bucket, key: string, content: string): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), "svc-s3-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await writeFile(join(dir, "file"), content);
  await bucket.put({ key, file: join(dir, "file") }, t.context as AbortSignal, () => undefined);
}

test.beforeEach((t) => {
  t.context = AbortSignal.timeout(60_000);
});

for (const [title, quirks] of [
  ["with tokens for the next page", {}],
  ["without tokens for the next page", { lacksTokens: true }],
  ["with only the first version of the call", { isOld: true }],
] as const) {
  test(`a server ${title} lists all objects`, async (t) => {
    const bucket = await startServer(t, quirks);
    for (const key of ["a/1", "a/2", "a/3", "a/4", "a/5"]) await put(t, bucket, key, "x");
    const objects = await bucket.list({ prefix: "" }, t.context as AbortSignal);
    t.deepEqual(
      objects.map(({ key }) => key),
      ["a/1", "a/2", "a/3", "a/4", "a/5"],
    );
  });
}

test("the list of a server that repeats its first page fails instead of being incomplete", async (t) => {
  const bucket = await startServer(t, { repeatsFirstPage: true });
  for (const key of ["a/1", "a/2", "a/3"]) await put(t, bucket, key, "x");
  await t.throwsAsync(bucket.list({ prefix: "" }, t.context as AbortSignal), {
    message: "the server lists only the first page of the objects",
  });
});

for (const ignoresRanges of [false, true]) {
  test(`a part of an object is ${ignoresRanges ? "not read from a server that ignores ranges" : "read"}`, async (t) => {
    const bucket = await startServer(t, { ignoresRanges });
    await put(t, bucket, "a", "0123456789");
    const pieces: Uint8Array[] = [];
    const read = bucket.read(
      { key: "a", etag: "", start: 3, end: 6 },
      t.context as AbortSignal,
      async (bytes) => void pieces.push(bytes),
    );
    if (ignoresRanges) {
      await t.throwsAsync(read, { message: /^the server ignores ranges/ });
      return;
    }
    await read;
    t.is(Buffer.concat(pieces).toString(), "345");
  });
}

test("a list of endless empty pages fails", async (t) => {
  const bucket = await startServer(t, { sendsEmptyPages: true });
  await t.throwsAsync(bucket.list({ prefix: "" }, t.context as AbortSignal), {
    message: "the server sent 101 empty pages of objects; the server is not usable",
  });
});

for (const [title, quirks, error] of [
  ["passes with a server that lists all pages", {}, ""],
  ["passes with a server that has only the first version of the call", { isOld: true }, ""],
  [
    "fails with a server that repeats its first page",
    { repeatsFirstPage: true },
    "the server lists only the first page of the objects: archives are not listed, and old ones are not removed",
  ],
] as const) {
  test(`the test of a storage ${title}`, async (t) => {
    const { endpoint, bucket, accessKey, secretKey } = await listen(t, quirks);
    const daemon = await newDaemon();
    const backups = daemon.client(BackupService);
    const value = { endpoint, bucket, accessKey, secretKey, pathStyle: true };
    const name = title.replaceAll(" ", "-").slice(0, 40);
    await backups.upsertBackupStorage({ name, location: { case: "s3", value } });
    const { checks } = await backups.testBackupStorage({ name });
    t.deepEqual(
      checks.map((check) => [check.name, check.ok, check.error]),
      [
        ["list", error === "", error],
        ["write", true, ""],
        ["read", true, ""],
        ["delete", true, ""],
      ],
    );
  });
}
