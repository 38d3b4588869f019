/**
 * A bucket of an S3 server, through Amazon's client, which is large and therefore runs in a separate thread.
 */
import { open } from "node:fs/promises";
import { Readable } from "node:stream";
import { rootCertificates } from "node:tls";
import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from "@aws-sdk/client-s3";
import { SvcError } from "../../errors.ts";
import { BytePacer, limitBytes } from "../../lib/byte-streams.ts";
import { MultipartUploads, partBytes, readPart } from "./multipart-uploads.ts";
import type { PartHashes } from "./part-hashes.ts";
import type { S3Object, S3Operations, S3Connection } from "./s3-calls.ts";

const attempts = 5;
const connectMs = 10_000;
/** Timeout for one request, in milliseconds. */
const requestMs = 10 * 60_000;
/** Limit for one listing: a bucket may contain other data. */
const maxObjects = 100_000;
/** Limit for consecutive pages. A server may send some, such as for removed objects; a faulty one may never stop. */
const maxEmptyPages = 100;
/**
 * Limit for a response that is parsed as a whole, at up to 0.7 s of the thread for each MiB. A page of a listing has at
 * most 1,000 keys of 1 KiB.
 */
const maxResponseBytes = 4 << 20;
/** Limit for its duration, as a multiple of the silence that breaks a connection: a server may send a byte at a time. */
const maxResponseSilences = 4;
/** Limit of S3 for a key. */
const maxKeyBytes = 1024;
/** Encrypted archives have no specific type. */
const contentTypeOf = (key: string): string =>
  key.endsWith(".age") ? "application/octet-stream" : "application/zstd";

/** Where the next page of a list starts. */
interface NextPage {
  readonly ContinuationToken?: string;
  readonly StartAfter?: string;
  readonly Marker?: string;
}

interface ListedPage {
  readonly Contents?: { readonly Key?: string | undefined; readonly Size?: number | undefined }[] | undefined;
  readonly IsTruncated?: boolean | undefined;
  readonly NextContinuationToken?: string | undefined;
}

export class S3Bucket implements Disposable {
  readonly #client: S3Client;
  readonly #hashes: PartHashes;
  readonly #bucket: string;
  readonly #silenceMs: number;
  readonly #pacer: BytePacer | undefined;
  readonly #uploads: MultipartUploads;

  /** @param hashes shared with concurrent uploads to other buckets */
  constructor(
    {
      endpoint,
      region,
      bucket,
      accessKey,
      secretKey,
      pathStyle,
      ca,
      maxBytesPerSec,
      silenceMs,
    }: S3Connection,
    hashes: PartHashes,
  ) {
    this.#hashes = hashes;
    this.#bucket = bucket;
    this.#silenceMs = silenceMs;
    this.#pacer = maxBytesPerSec === undefined ? undefined : new BytePacer(maxBytesPerSec);
    this.#client = new S3Client({
      endpoint,
      region: region === "" ? "us-east-1" : region,
      credentials: { accessKeyId: accessKey, secretAccessKey: secretKey },
      forcePathStyle: pathStyle,
      maxAttempts: attempts,
      retryMode: "standard",
      // Other servers reject Amazon's newer checksums; bodies are signed by their SHA-256.
      requestChecksumCalculation: "WHEN_REQUIRED",
      responseChecksumValidation: "WHEN_REQUIRED",
      requestHandler: {
        connectionTimeout: connectMs,
        socketTimeout: silenceMs,
        requestTimeout: requestMs,
        throwOnRequestTimeout: true,
        httpsAgent: { keepAlive: true, ...(ca !== "" && { ca: [...rootCertificates, ca] }) },
      },
    });
    limitResponses(this.#client, maxResponseSilences * silenceMs);
    this.#uploads = new MultipartUploads(this.#client, bucket, this.#pacer);
  }

  /** All objects whose keys have this prefix. */
  async list(
    { prefix, pageSize }: S3Operations["list"]["request"],
    signal: AbortSignal,
  ): Promise<S3Object[]> {
    const objects: S3Object[] = [];
    const filter = { Bucket: this.#bucket, Prefix: prefix, MaxKeys: pageSize };
    let emptyPages = 0;
    for (let next: NextPage = {}; ;) {
      const page = await this.#page({ ...filter, ...next }, signal);
      const last = objects.at(-1)?.key ?? "";
      const keys = page.Contents ?? [];
      const mayRepeat = next.StartAfter !== undefined || next.Marker !== undefined;
      if (mayRepeat && !keys.every(({ Key = "" }) => isAfter(Key, last))) {
        if (next.Marker !== undefined)
          throw new SvcError("unavailable", "the server lists only the first page of the objects");
        next = { Marker: last };
        continue;
      }
      for (const { Key, Size } of keys) {
        if (Key !== undefined) objects.push({ key: checkedKey(Key), sizeBytes: checkedSize(Size) });
      }
      emptyPages = keys.length > 0 ? 0 : emptyPages + 1;
      if (emptyPages > maxEmptyPages)
        throw new SvcError(
          "unavailable",
          `the server sent ${emptyPages} empty pages of objects; the server is not usable`,
        );
      if (objects.length > maxObjects) {
        const message = `the bucket has more than ${maxObjects} objects with this prefix; use a separate prefix for the storage`;
        throw new SvcError("too_many", message);
      }
      if (page.IsTruncated !== true) return objects;
      const StartAfter = objects.at(-1)?.key;
      if (page.NextContinuationToken !== undefined) next = { ContinuationToken: page.NextContinuationToken };
      // Some servers have no tokens, and some only the first version of this call.
      else if (StartAfter !== undefined && keys.length > 0)
        next = next.Marker === undefined ? { StartAfter } : { Marker: StartAfter };
      else throw new SvcError("unavailable", "the server's list of objects is incomplete");
    }
  }

  /** A page of the second version of the call, or of the first one if the request has its marker. */
  async #page(
    request: NextPage & { Bucket: string; Prefix: string; MaxKeys: number | undefined },
    abortSignal: AbortSignal,
  ): Promise<ListedPage> {
    return request.Marker === undefined
      ? this.#client.send(new ListObjectsV2Command(request), { abortSignal })
      : this.#client.send(new ListObjectsCommand(request), { abortSignal });
  }

  async head(
    { key }: S3Operations["head"]["request"],
    signal: AbortSignal,
  ): Promise<S3Operations["head"]["result"]> {
    try {
      const { ContentLength, ETag } = await this.#client.send(
        new HeadObjectCommand({ Bucket: this.#bucket, Key: key }),
        { abortSignal: signal },
      );
      return { sizeBytes: checkedSize(ContentLength), etag: ETag ?? "" };
    } catch (error) {
      // A missing bucket has the same response, because HEAD has no body.
      if (statusOf(error) === 404) return undefined;
      throw error;
    }
  }

  /** Stores the file completely or not at all; removes the parts of a failed upload. */
  async put(
    { key, file }: S3Operations["put"]["request"],
    signal: AbortSignal,
    onProgress: (doneBytes: number) => void,
  ): Promise<void> {
    await using source = await open(file, "r");
    const { size } = await source.stat();
    if (size > partBytes) {
      using hashes = this.#hashes.of(file);
      const uploaded = { source, sizeBytes: size, hashes, contentType: contentTypeOf(key) };
      await this.#uploads.upload(key, uploaded, signal, onProgress);
    } else {
      const body = await readPart(source, Buffer.allocUnsafeSlow(size), 0, size);
      await this.#pacer?.take(size, signal);
      await this.#client.send(
        new PutObjectCommand({ Bucket: this.#bucket, Key: key, Body: body, ContentType: contentTypeOf(key) }),
        { abortSignal: signal },
      );
    }
    const stored = await this.head({ key }, signal);
    if (stored?.sizeBytes !== size) {
      throw new SvcError("unavailable", "the server accepted the archive, but does not list it");
    }
    onProgress(size);
  }

  /** Calls `onPiece` for each piece in order. Resumes after a broken connection. */
  async read(
    { key, etag, start, end }: S3Operations["read"]["request"],
    signal: AbortSignal,
    onPiece: (bytes: Uint8Array) => Promise<void>,
  ): Promise<void> {
    let failures = 0;
    for (let position = start; position < end;) {
      const { Body: body, ContentRange: range } = await this.#client.send(
        new GetObjectCommand({
          Bucket: this.#bucket,
          Key: key,
          Range: `bytes=${position}-${end - 1}`,
          ...(etag !== "" && { IfMatch: etag }),
        }),
        { abortSignal: signal },
      );
      if (range === undefined && position > 0) {
        (body as BodyStream).destroy();
        const message = "the server ignores ranges, so parts of an archive cannot be read";
        throw new SvcError("not_possible", message);
      }
      try {
        for await (const bytes of withSilence(body as BodyStream, this.#silenceMs, signal)) {
          const needed = bytes.subarray(0, end - position);
          // The server sends more than the range, perhaps forever.
          if (needed.length === 0) break;
          await this.#pacer?.take(needed.length, signal);
          await onPiece(needed);
          position += needed.length;
          failures = 0;
        }
        if (position < end) throw new Error("the server sent an incomplete object");
      } catch (error) {
        signal.throwIfAborted();
        if (++failures >= attempts) throw error;
      }
    }
  }

  async remove({ key }: S3Operations["remove"]["request"], signal: AbortSignal): Promise<void> {
    await this.#client.send(new DeleteObjectCommand({ Bucket: this.#bucket, Key: key }), {
      abortSignal: signal,
    });
  }

  async abandon({ key }: S3Operations["abandon"]["request"], signal: AbortSignal): Promise<void> {
    await this.#uploads.abandon(key, signal);
  }

  [Symbol.dispose](): void {
    this.#client.destroy();
  }
}

/** Limits the responses that the client reads into memory: all except the content of an object. */
function limitResponses(client: S3Client, maxMs: number): void {
  client.middlewareStack.add(
    (next, { commandName }) =>
      async (args) => {
        const result = await next(args);
        const response = result.response as { statusCode: number; body?: unknown };
        const isContent = commandName === "GetObjectCommand" && response.statusCode < 300;
        // Amazon sends blanks for minutes until a large upload is complete.
        const limitMs = commandName === "CompleteMultipartUploadCommand" ? requestMs : maxMs;
        if (!isContent && response.body instanceof Readable)
          response.body = limitTime(limitBytes(response.body, maxResponseBytes, responseTooLarge), limitMs);
        return result;
      },
    // Before the response is parsed.
    { step: "deserialize", priority: "low", name: "limitResponses" },
  );
}

function limitTime(body: Readable, maxMs: number): Readable {
  const timer = setTimeout(() => body.destroy(timeoutError()), maxMs);
  return body.once("close", () => clearTimeout(timer));
}

/** `explain` recognizes it by its name: the client changes the message. */
function responseTooLarge(): Error {
  return Object.assign(new Error(`a response of more than ${maxResponseBytes} bytes`), {
    name: "ResponseTooLarge",
  });
}

/** `explain` recognizes it by its name. */
function timeoutError(): Error {
  return Object.assign(new Error("nothing came"), { name: "TimeoutError" });
}

type BodyStream = AsyncIterable<Uint8Array> & { destroy(error?: Error): void };

/** Yields the pieces of a body. Fails after too long a silence, or if the signal aborts. */
async function* withSilence(
  body: BodyStream,
  silenceMs: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const end = (): void => body.destroy(signal.reason as Error);
  signal.addEventListener("abort", end, { once: true });
  let timer = setTimeout(() => body.destroy(timeoutError()), silenceMs);
  try {
    for await (const bytes of body) {
      // The consumer has no time limit.
      clearTimeout(timer);
      yield bytes;
      timer = setTimeout(() => body.destroy(timeoutError()), silenceMs);
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
  }
}

function checkedKey(key: string): string {
  if (Buffer.byteLength(key) <= maxKeyBytes) return key;
  throw new SvcError("unavailable", `the server lists a key of more than ${maxKeyBytes} bytes`);
}

function checkedSize(size = 0): number {
  if (Number.isSafeInteger(size) && size >= 0) return size;
  throw new SvcError("unavailable", `the server reports ${size} bytes as the size of an object`);
}

/** S3 sorts keys by their bytes. */
function isAfter(key: string, other: string): boolean {
  return Buffer.compare(Buffer.from(key), Buffer.from(other)) > 0;
}

function statusOf(error: unknown): number | undefined {
  return (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode;
}
