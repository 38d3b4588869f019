/**
 * A bucket of an S3 server, through Amazon's client, which is large and therefore runs in a separate thread.
 */
import { open, type FileHandle } from "node:fs/promises";
import { Readable } from "node:stream";
import { setTimeout as wait } from "node:timers/promises";
import { rootCertificates } from "node:tls";
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
  UploadPartCommand,
  type CompletedPart,
} from "@aws-sdk/client-s3";
import { SvcError } from "../../errors.ts";
import { BytePacer, limitBytes } from "../../lib/byte-streams.ts";
import type { FileHashes, PartHashes } from "./part-hashes.ts";
import type { S3Object, S3Operations, S3Connection } from "./s3-calls.ts";

const partBytes = 8 << 20;
/** The maximum of S3. */
const maxParts = 10_000;
/** Concurrent parts of one upload; each uses memory. */
const parallelUploads = 2;
const attempts = 5;
const connectMs = 10_000;
/** Timeout for one request, in milliseconds. */
const requestMs = 10 * 60_000;
/** Milliseconds for cleaning up after a failed transfer. */
const cleanUpMs = 15_000;
const maxAborts = 5;
const abortAgainMs = 250;
/** Limit for one listing: a bucket may contain other data. */
const maxObjects = 100_000;
/** Limit for a response that is parsed as a whole. A page of a listing has at most 1,000 keys of 1 KiB. */
const maxResponseBytes = 16 << 20;
/** Encrypted archives have no specific type. */
const contentTypeOf = (key: string): string =>
  key.endsWith(".age") ? "application/octet-stream" : "application/zstd";

export class S3Bucket implements Disposable {
  readonly #client: S3Client;
  readonly #hashes: PartHashes;
  readonly #bucket: string;
  readonly #silenceMs: number;
  readonly #pacer: BytePacer | undefined;

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
    limitResponses(this.#client);
  }

  /** All objects whose keys have this prefix. */
  async list({ prefix }: S3Operations["list"]["request"], signal: AbortSignal): Promise<S3Object[]> {
    const objects: S3Object[] = [];
    for (let next: { ContinuationToken?: string; StartAfter?: string } = {}; ;) {
      const page = await this.#client.send(
        new ListObjectsV2Command({ Bucket: this.#bucket, Prefix: prefix, ...next }),
        { abortSignal: signal },
      );
      const last = objects.at(-1)?.key ?? "";
      const keys = page.Contents ?? [];
      if (next.StartAfter !== undefined && !keys.every(({ Key = "" }) => isAfter(Key, last)))
        throw new SvcError("unavailable", "the server lists only the first page of the objects");
      for (const { Key, Size } of keys) {
        if (Key !== undefined) objects.push({ key: Key, sizeBytes: Size ?? 0 });
      }
      if (objects.length > maxObjects) {
        const message = `the bucket has more than ${maxObjects} objects with this prefix; use a separate prefix for the storage`;
        throw new SvcError("too_many", message);
      }
      if (page.IsTruncated !== true) return objects;
      const StartAfter = objects.at(-1)?.key;
      if (page.NextContinuationToken !== undefined) next = { ContinuationToken: page.NextContinuationToken };
      // Some servers have only the tokens of the first version of this call.
      else if (StartAfter !== undefined && keys.length > 0) next = { StartAfter };
      else throw new SvcError("unavailable", "the server's list of objects is incomplete");
    }
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
      return { sizeBytes: ContentLength ?? 0, etag: ETag ?? "" };
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
      await this.#uploadParts(key, { source, sizeBytes: size, hashes }, signal, onProgress);
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
          const wanted = bytes.subarray(0, end - position);
          await this.#pacer?.take(wanted.length, signal);
          await onPiece(wanted);
          position += wanted.length;
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
    const { Uploads: uploads = [] } = await this.#client.send(
      new ListMultipartUploadsCommand({ Bucket: this.#bucket, Prefix: key }),
      { abortSignal: signal },
    );
    for (const { Key, UploadId } of uploads) {
      if (Key === key && UploadId !== undefined) await this.#abort(key, UploadId, signal);
    }
  }

  [Symbol.dispose](): void {
    this.#client.destroy();
  }

  async #uploadParts(
    key: string,
    file: UploadedFile,
    signal: AbortSignal,
    onProgress: (doneBytes: number) => void,
  ): Promise<void> {
    const target = { Bucket: this.#bucket, Key: key };
    const { UploadId } = await this.#client.send(
      new CreateMultipartUploadCommand({ ...target, ContentType: contentTypeOf(key) }),
      { abortSignal: signal },
    );
    if (UploadId === undefined) {
      throw new SvcError("unavailable", "the server did not start an upload");
    }
    try {
      const Parts = await this.#sendParts({ ...target, UploadId }, file, signal, onProgress);
      await this.#client
        .send(new CompleteMultipartUploadCommand({ ...target, UploadId, MultipartUpload: { Parts } }), {
          abortSignal: signal,
        })
        .catch((error: unknown) => {
          // The first response may have been lost; the next request checks whether the upload is complete.
          if (nameOf(error) !== "NoSuchUpload") throw error;
        });
    } catch (error) {
      await this.#abort(key, UploadId, AbortSignal.timeout(cleanUpMs)).catch(() => undefined);
      throw error;
    }
  }

  async #sendParts(
    upload: { Bucket: string; Key: string; UploadId: string },
    { source, sizeBytes, hashes }: UploadedFile,
    signal: AbortSignal,
    onProgress: (doneBytes: number) => void,
  ): Promise<CompletedPart[]> {
    const eachBytes = Math.max(partBytes, Math.ceil(sizeBytes / maxParts));
    const parts: CompletedPart[] = [];
    const numbers = Array.from(
      { length: Math.ceil(sizeBytes / eachBytes) },
      (_, index) => index + 1,
    ).values();
    let doneBytes = 0;
    let hasFailed = false;
    const lane = async (): Promise<void> => {
      const buffer = Buffer.allocUnsafeSlow(eachBytes);
      for (const PartNumber of numbers) {
        // Running requests are not aborted: parts that arrive after the end of their upload may stay on the
        // server forever.
        if (hasFailed) return;
        const at = (PartNumber - 1) * eachBytes;
        const body = await readPart(source, buffer, at, Math.min(eachBytes, sizeBytes - at));
        await this.#pacer?.take(body.length, signal);
        const part = new UploadPartCommand({ ...upload, PartNumber, Body: body });
        signWith(part, hashes.take(at, body));
        const { ETag } = await this.#client.send(part, { abortSignal: signal });
        parts[PartNumber - 1] = { PartNumber, ETag };
        onProgress((doneBytes += body.length));
      }
    };
    const ends = await Promise.allSettled(
      Array.from({ length: parallelUploads }, () =>
        lane().catch((error: unknown) => {
          hasFailed = true;
          throw error;
        }),
      ),
    );
    for (const end of ends) if (end.status === "rejected") throw end.reason;
    return parts;
  }

  /**
   * Repeats until the server no longer knows the upload: a part that was in transfer survives the first call.
   */
  async #abort(key: string, UploadId: string, signal: AbortSignal): Promise<void> {
    for (let call = 0; call < maxAborts; call++) {
      try {
        await this.#client.send(
          new AbortMultipartUploadCommand({ Bucket: this.#bucket, Key: key, UploadId }),
          { abortSignal: signal },
        );
      } catch (error) {
        if (nameOf(error) === "NoSuchUpload") return;
        throw error;
      }
      await wait(abortAgainMs, undefined, { signal });
    }
  }
}

/** A file that is sent in parts. */
interface UploadedFile {
  source: FileHandle;
  sizeBytes: number;
  hashes: FileHashes;
}

/** The client uses an existing hash of the body. */
function signWith(part: UploadPartCommand, sha256: string): void {
  part.middlewareStack.add(
    (next) => (args) => {
      const { headers } = args.request as { headers: Record<string, string> };
      headers["x-amz-content-sha256"] = sha256;
      return next(args);
    },
    { step: "build", name: "signWith" },
  );
}

/** Limits the responses that the client reads into memory: all except the content of an object. */
function limitResponses(client: S3Client): void {
  client.middlewareStack.add(
    (next, { commandName }) =>
      async (args) => {
        const result = await next(args);
        const response = result.response as { statusCode: number; body?: unknown };
        const isContent = commandName === "GetObjectCommand" && response.statusCode < 300;
        if (!isContent && response.body instanceof Readable)
          response.body = limitBytes(response.body, maxResponseBytes, responseTooLarge);
        return result;
      },
    // Before the response is parsed.
    { step: "deserialize", priority: "low", name: "limitResponses" },
  );
}

/** `explain` recognizes it by its name: the client changes the message. */
function responseTooLarge(): Error {
  return Object.assign(new Error(`a response of more than ${maxResponseBytes} bytes`), {
    name: "ResponseTooLarge",
  });
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
  const tooLate = Object.assign(new Error("nothing came"), { name: "TimeoutError" });
  let timer = setTimeout(() => body.destroy(tooLate), silenceMs);
  try {
    for await (const bytes of body) {
      // The consumer has no time limit.
      clearTimeout(timer);
      yield bytes;
      timer = setTimeout(() => body.destroy(tooLate), silenceMs);
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
  }
}

async function readPart(source: FileHandle, buffer: Buffer, at: number, length: number): Promise<Buffer> {
  for (let done = 0; done < length;) {
    const { bytesRead } = await source.read(buffer, done, length - done, at + done);
    if (bytesRead === 0) throw new Error("the file was truncated");
    done += bytesRead;
  }
  return buffer.subarray(0, length);
}

/** S3 sorts keys by their bytes. */
function isAfter(key: string, other: string): boolean {
  return Buffer.compare(Buffer.from(key), Buffer.from(other)) > 0;
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : "";
}

function statusOf(error: unknown): number | undefined {
  return (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode;
}
