/** Archives in a bucket: `PREFIX/APP/NAME`. */
import { notFound } from "../../errors.ts";
import { slicePauses } from "../../lib/slice-pauses.ts";
import { parseArchiveName } from "../archives/archive-name.ts";
import type { S3Connection } from "./s3-calls.ts";
import type { S3Thread } from "./s3-thread.ts";
import type { ArchiveKey, Storage, StoredArchive, StoredFile, TransferOptions } from "./storage.ts";

export class S3Storage implements Storage {
  readonly #thread: S3Thread;
  readonly #connection: S3Connection;
  /** Empty, or ends with a slash. */
  readonly #prefix: string;

  constructor(thread: S3Thread, connection: S3Connection, prefix: string) {
    this.#thread = thread;
    this.#connection = connection;
    const trimmed = prefix.replace(/^\/+|\/+$/g, "");
    this.#prefix = trimmed === "" ? "" : `${trimmed}/`;
  }

  async list(appId: string | undefined, signal: AbortSignal): Promise<StoredArchive[]> {
    const prefix = appId === undefined ? this.#prefix : `${this.#prefix}${appId}/`;
    const objects = await this.#thread.call(this.#connection, "list", { prefix }, { signal });
    const archives: StoredArchive[] = [];
    const pause = slicePauses();
    for (const { key, sizeBytes } of objects) {
      await pause();
      const [id, name = "", ...rest] = key.slice(this.#prefix.length).split("/");
      const parsed = parseArchiveName(name);
      if (parsed !== undefined && parsed.appId === id && rest.length === 0)
        archives.push({ ...parsed, name, sizeBytes });
    }
    return archives;
  }

  async count(namePrefix: string, signal: AbortSignal): Promise<number> {
    const request = { prefix: `${this.#prefix}${namePrefix}`, pageSize: 1 };
    return (await this.#thread.call(this.#connection, "list", request, { signal })).length;
  }

  async put(key: ArchiveKey, file: string, { signal, onProgress }: TransferOptions): Promise<void> {
    await this.#thread.call(this.#connection, "put", { key: this.#keyOf(key), file }, { signal, onProgress });
  }

  async open(archive: ArchiveKey, signal?: AbortSignal): Promise<StoredFile> {
    const [thread, connection, key] = [this.#thread, this.#connection, this.#keyOf(archive)];
    const stored = await thread.call(connection, "head", { key }, { signal });
    if (stored === undefined) throw notFound("backup", archive.name);
    const { sizeBytes, etag } = stored;
    return {
      sizeBytes,
      read: (start, end, readSignal) => thread.read(connection, { key, etag, start, end }, readSignal),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  }

  async remove(key: ArchiveKey, signal?: AbortSignal): Promise<void> {
    await this.#thread.call(this.#connection, "remove", { key: this.#keyOf(key) }, { signal });
  }

  async abandon(key: ArchiveKey, signal?: AbortSignal): Promise<void> {
    await this.#thread.call(this.#connection, "abandon", { key: this.#keyOf(key) }, { signal });
  }

  #keyOf({ appId, name }: ArchiveKey): string {
    return this.#prefix + (appId === "" ? name : `${appId}/${name}`);
  }
}
