/**
 * SHA-256 of the parts of files that are uploaded, by which each request is signed: taken once for all buckets that a file goes
 * to at the same time.
 */
import { hash } from "node:crypto";

interface SharedHashes {
  readonly byPlace: Map<number, string>;
  uploads: number;
}

/** Of one file, whose parts are the same for all. */
export interface FileHashes extends Disposable {
  /**
   * @param at where the part begins
   * @returns lower-case hex
   */
  take(at: number, part: Uint8Array): string;
}

export class PartHashes {
  /** By file, while it is uploaded. */
  readonly #files = new Map<string, SharedHashes>();

  /** To be disposed of with the upload. The file does not change meanwhile. */
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
