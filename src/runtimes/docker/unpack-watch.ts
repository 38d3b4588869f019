/** Limits what the layers of a pulled image unpack to: the engine reports only their compressed sizes. */
import { statfs } from "node:fs/promises";
import { SvcError } from "../../errors.ts";

const intervalMs = 500;

export interface UnpackLimit {
  /** For the error. */
  readonly reference: string;
  /** The engine's directory of images. */
  readonly dir: string;
  readonly maxBytes: number;
}

/**
 * Measures the free space of the engine's file system until it is disposed of. What others write at the same time
 * counts, too, but the limit is far above that.
 */
export class UnpackWatch implements Disposable {
  readonly #exceeded = new AbortController();
  readonly #timer: NodeJS.Timeout;
  #isMeasuring = false;

  private constructor({ reference, dir, maxBytes }: UnpackLimit, initialBytes: number) {
    const measure = async (): Promise<void> => {
      const usedBytes = initialBytes - (await freeBytes(dir));
      if (usedBytes <= maxBytes) return;
      const message = `the image ${reference} unpacks to more than ${maxBytes} bytes, which is what max_image_bytes_per_user leaves to you; use a smaller image`;
      this.#exceeded.abort(new SvcError("too_many", message));
    };
    this.#timer = setInterval(() => {
      if (this.#isMeasuring) return;
      this.#isMeasuring = true;
      // The engine itself reports a file system that is gone.
      void measure()
        .catch(() => undefined)
        .finally(() => (this.#isMeasuring = false));
    }, intervalMs);
  }

  /** @returns undefined if this process does not see the engine's directory */
  static async start(limit: UnpackLimit): Promise<UnpackWatch | undefined> {
    const initialBytes = await freeBytes(limit.dir).catch(() => undefined);
    return initialBytes === undefined ? undefined : new UnpackWatch(limit, initialBytes);
  }

  /** Aborted with `too_many` above the limit. */
  get signal(): AbortSignal {
    return this.#exceeded.signal;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

async function freeBytes(dir: string): Promise<number> {
  const { bfree, bsize } = await statfs(dir);
  return bfree * bsize;
}
