/** Uploads of large files to a bucket in parts, two at a time. An upload that fails leaves no parts behind. */
import type { FileHandle } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  ListMultipartUploadsCommand,
  UploadPartCommand,
  type CompletedPart,
  type S3Client,
} from "@aws-sdk/client-s3";
import { SvcError } from "../../errors.ts";
import type { BytePacer } from "../../lib/byte-streams.ts";
import type { FileHashes } from "./part-hashes.ts";

/** Smaller files are sent in one request. */
export const partBytes = 8 << 20;
/** The maximum of S3. */
const maxParts = 10_000;
/** Concurrent parts of one upload; each uses memory. */
const parallelUploads = 2;
/** Milliseconds for cleaning up after a failed transfer. */
const cleanUpMs = 15_000;
const maxAborts = 5;
const abortAgainMs = 250;

/** A file that is sent in parts. */
export interface UploadedFile {
  source: FileHandle;
  sizeBytes: number;
  hashes: FileHashes;
  contentType: string;
}

export class MultipartUploads {
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #pacer: BytePacer | undefined;

  constructor(client: S3Client, bucket: string, pacer?: BytePacer) {
    this.#client = client;
    this.#bucket = bucket;
    this.#pacer = pacer;
  }

  /** Stores the file completely or not at all. */
  async upload(
    key: string,
    file: UploadedFile,
    signal: AbortSignal,
    onProgress: (doneBytes: number) => void,
  ): Promise<void> {
    const target = { Bucket: this.#bucket, Key: key };
    const { UploadId } = await this.#client.send(
      new CreateMultipartUploadCommand({ ...target, ContentType: file.contentType }),
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

  /** Removes the parts of earlier uploads of this key. */
  async abandon(key: string, signal: AbortSignal): Promise<void> {
    const { Uploads: uploads = [] } = await this.#client.send(
      new ListMultipartUploadsCommand({ Bucket: this.#bucket, Prefix: key }),
      { abortSignal: signal },
    );
    for (const { Key, UploadId } of uploads) {
      if (Key === key && UploadId !== undefined) await this.#abort(key, UploadId, signal);
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
    const sendNextParts = async (): Promise<void> => {
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
        sendNextParts().catch((error: unknown) => {
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

/** Fills the buffer from this offset of the file. @throws Error if the file is shorter */
export async function readPart(
  source: FileHandle,
  buffer: Buffer,
  at: number,
  length: number,
): Promise<Buffer> {
  for (let done = 0; done < length;) {
    const { bytesRead } = await source.read(buffer, done, length - done, at + done);
    if (bytesRead === 0) throw new Error("the file was truncated");
    done += bytesRead;
  }
  return buffer.subarray(0, length);
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : "";
}
