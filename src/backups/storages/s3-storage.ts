/** Archives in a bucket: `PREFIX/APP/NAME`. */
import { notFound } from "../../errors.ts";
import { parseArchiveName } from "../archives/archive-name.ts";
import type { S3Place } from "./s3-calls.ts";
import type { S3Thread } from "./s3-thread.ts";
import type { ArchiveKey, Storage, StoredArchive, StoredFile, TransferOptions } from "./storage.ts";

export class S3Storage implements Storage {
  readonly #thread: S3Thread;
  readonly #place: S3Place;
  /** Empty, or ends with a slash. */
  readonly #prefix: string;

  constructor(thread: S3Thread, place: S3Place, prefix: string) {
    this.#thread = thread;
    this.#place = place;
    const trimmed = prefix.replace(/^\/+|\/+$/g, "");
    this.#prefix = trimmed === "" ? "" : `${trimmed}/`;
  }

  async list(appId: string | undefined, signal: AbortSignal): Promise<StoredArchive[]> {
    const prefix = appId === undefined ? this.#prefix : `${this.#prefix}${appId}/`;
    const objects = await this.#thread.call(this.#place, "list", { prefix }, { signal });
    return objects.flatMap(({ key, sizeBytes }) => {
      const [id, name = "", ...rest] = key.slice(this.#prefix.length).split("/");
      const parsed = parseArchiveName(name);
      if (parsed === undefined || parsed.appId !== id || rest.length > 0) return [];
      return [{ ...parsed, name, sizeBytes }];
    });
  }

  async put(key: ArchiveKey, file: string, { signal, onProgress }: TransferOptions): Promise<void> {
    await this.#thread.call(this.#place, "put", { key: this.#keyOf(key), file }, { signal, onProgress });
  }

  async open(archive: ArchiveKey, signal?: AbortSignal): Promise<StoredFile> {
    const [thread, place, key] = [this.#thread, this.#place, this.#keyOf(archive)];
    const there = await thread.call(place, "head", { key }, { signal });
    if (there === undefined) throw notFound("backup", archive.name);
    const { sizeBytes, etag } = there;
    return {
      sizeBytes,
      read: (start, end, readSignal) => thread.read(place, { key, etag, start, end }, readSignal),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  }

  async remove(key: ArchiveKey, signal?: AbortSignal): Promise<void> {
    await this.#thread.call(this.#place, "remove", { key: this.#keyOf(key) }, { signal });
  }

  async abandon(key: ArchiveKey, signal?: AbortSignal): Promise<void> {
    await this.#thread.call(this.#place, "abandon", { key: this.#keyOf(key) }, { signal });
  }

  #keyOf({ appId, name }: ArchiveKey): string {
    return this.#prefix + (appId === "" ? name : `${appId}/${name}`);
  }
}
