/**
 * SHA-256 of uploaded parts, which sign the requests. Computed once per file for concurrent uploads to
 * several buckets.
 */
import { hash } from "node:crypto";

interface SharedHashes {
  readonly byPlace: Map<number, string>;
  uploads: number;
}

/** The hashes of one file. */
export interface FileHashes extends Disposable {
  /**
   * @param at offset of the part
   * @returns lower-case hex
   */
  take(at: number, part: Uint8Array): string;
}

export class PartHashes {
  /** By file, during its uploads. */
  readonly #files = new Map<string, SharedHashes>();

  /** Dispose of it after the upload. The file must not change before. */
  of(file: string): FileHashes {
    const shared = this.#files.get(file) ?? { byPlace: new Map<number, string>(), uploads: 0 };
    this.#files.set(file, shared);
    shared.uploads += 1;
    return {
      take(at, part) {
        const taken = shared.byPlace.get(at) ?? hash("sha256", part);
        shared.byPlace.set(at, taken);
        return taken;
      },
      [Symbol.dispose]: () => {
        shared.uploads -= 1;
        if (shared.uploads === 0) this.#files.delete(file);
      },
    };
  }
}
