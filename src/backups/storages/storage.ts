/** The interface of all kinds of storages. */
import { SvcError } from "../../errors.ts";
import type { ArchiveName } from "../archives/archive-name.ts";

/** An archive as a storage lists it. */
export interface StoredArchive extends ArchiveName {
  name: string;
  sizeBytes: number;
}

/** Identifies an archive. */
export interface ArchiveKey {
  /** Empty if it does not belong to an app. */
  appId: string;
  name: string;
}

/** An archive that is open for reading. */
export interface StoredFile extends AsyncDisposable {
  readonly sizeBytes: number;
  /**
   * Reads a range of bytes.
   * @param start first byte
   * @param end after the last byte
   */
  read(start: number, end: number, signal?: AbortSignal): AsyncIterable<Buffer>;
}

export interface TransferOptions {
  signal?: AbortSignal | undefined;
  onProgress?: (doneBytes: number) => void;
}

export interface Storage {
  /** Lists the archives of one app or of all, unordered. Other files are ignored. */
  list(appId: string | undefined, signal: AbortSignal): Promise<StoredArchive[]>;
  /** Counts the files whose names start with this, in pages as small as possible. @throws SvcError if pages are missing */
  count(namePrefix: string, signal: AbortSignal): Promise<number>;
  /** Stores a file atomically and durably. The caller keeps the file. */
  put(key: ArchiveKey, file: string, options: TransferOptions): Promise<void>;
  /** @throws SvcError `not_found` */
  open(key: ArchiveKey, signal?: AbortSignal): Promise<StoredFile>;
  /** Does nothing if it does not exist. */
  remove(key: ArchiveKey, signal?: AbortSignal): Promise<void>;
  /** Removes the rest of an interrupted `put`; complete archives stay. */
  abandon(key: ArchiveKey, signal?: AbortSignal): Promise<void>;
}

/** Whether the complete archive exists. */
export async function isStored(storage: Storage, key: ArchiveKey, signal: AbortSignal): Promise<boolean> {
  try {
    await using _file = await storage.open(key, signal);
    return true;
  } catch (error) {
    if (error instanceof SvcError && error.reason === "not_found") return false;
    throw error;
  }
}
