/** Where archives are kept: one shape for every kind of place. */
import { SvcError } from "../../errors.ts";
import type { ArchiveName } from "../archive-name.ts";

/** An archive as a storage lists it. */
export interface StoredArchive extends ArchiveName {
  name: string;
  sizeBytes: number;
}

/** Which archive. */
export interface ArchiveKey {
  /** Empty for what is no app's. */
  appId: string;
  name: string;
}

/** An archive that is open for reading. */
export interface StoredFile extends AsyncDisposable {
  readonly sizeBytes: number;
  /**
   * Some of its bytes.
   * @param start the first
   * @param end behind the last
   */
  read(start: number, end: number, signal?: AbortSignal): AsyncIterable<Buffer>;
}

export interface TransferOptions {
  signal?: AbortSignal | undefined;
  onProgress?: (doneBytes: number) => void;
}

export interface Storage {
  /** What is there, of one app or of all, in no order. What is no archive of svc's is passed over. */
  list(appId: string | undefined, signal: AbortSignal): Promise<StoredArchive[]>;
  /** Puts a whole file there: it is seen whole and durable, or not at all. The file stays the caller's. */
  put(key: ArchiveKey, file: string, options: TransferOptions): Promise<void>;
  /** @throws SvcError `not_found` */
  open(key: ArchiveKey, signal?: AbortSignal): Promise<StoredFile>;
  /** Nothing there is fine. */
  remove(key: ArchiveKey, signal?: AbortSignal): Promise<void>;
  /** Removes what a `put` has left that was cut short; what is whole stays. */
  abandon(key: ArchiveKey, signal?: AbortSignal): Promise<void>;
}

/** Whether an archive is there, whole. */
export async function isStored(storage: Storage, key: ArchiveKey, signal: AbortSignal): Promise<boolean> {
  try {
    await using _file = await storage.open(key, signal);
    return true;
  } catch (error) {
    if (error instanceof SvcError && error.reason === "not_found") return false;
    throw error;
  }
}
