/**
 * SHA-256 of the parts of files that are uploaded, by which each request is signed: taken once for all buckets that a file goes
 * to at the same time.
 */
import { hash } from "node:crypto";

interface SharedHashes {
  readonly byPlace: Map<number, string>;
  uploads: number;
}

export class PartHashes {
  /** By file, while it is uploaded. */
  readonly #files = new Map<string, SharedHashes>();

  /** To be disposed of with the upload. The file does not change meanwhile. */
  of(file: string): FileHashes {
    const shared = this.#files.get(file) ?? { byPlace: new Map<number, string>(), uploads: 0 };
    this.#files.set(file, shared);
    shared.uploads += 1;
    return new FileHashes(shared.byPlace, () => {
      shared.uploads -= 1;
      if (shared.uploads === 0) this.#files.delete(file);
    });
  }
}

/** Of one file, whose parts are the same for all. */
export class FileHashes implements Disposable {
  readonly #byPlace: Map<number, string>;
  readonly #onEnd: () => void;

  constructor(byPlace: Map<number, string>, onEnd: () => void) {
    this.#byPlace = byPlace;
    this.#onEnd = onEnd;
  }

  /**
   * @param at where the part begins
   * @returns lower-case hex
   */
  take(at: number, part: Uint8Array): string {
    const known = this.#byPlace.get(at);
    if (known !== undefined) return known;
    const taken = hash("sha256", part);
    this.#byPlace.set(at, taken);
    return taken;
  }

  [Symbol.dispose](): void {
    this.#onEnd();
  }
}
