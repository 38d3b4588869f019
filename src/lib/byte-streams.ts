import { type Readable, Transform, type Writable } from "node:stream";
import { setTimeout as wait } from "node:timers/promises";
import { once } from "node:events";

/** Fails with `error()` after more than `maxBytes`. */
export function byteLimit(maxBytes: number, error: () => Error): Transform {
  let passedBytes = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      passedBytes += chunk.length;
      if (passedBytes <= maxBytes) done(null, chunk);
      else done(error());
    },
  });
}

/**
 * Passes `source` through {@link byteLimit}. Either stream is destroyed when the other fails. A reader that starts
 * later receives an earlier error.
 */
export function limitBytes(source: Readable, maxBytes: number, error: () => Error): Readable {
  const limit = byteLimit(maxBytes, error);
  // Without a listener, an error before the first read would end the process.
  limit.on("error", () => undefined);
  if (source.errored !== null) return limit.destroy(source.errored);
  source.once("error", (cause) => limit.destroy(cause));
  limit.once("close", () => source.destroy());
  return source.pipe(limit);
}

/** Limits the rate of bytes of all callers together: each waits for the time that earlier bytes use. */
export class BytePacer {
  readonly #bytesPerSec: number;
  readonly #now: () => number;
  #freeAtMs = 0;

  /** @param now milliseconds of a monotonic clock */
  constructor(bytesPerSec: number, now: () => number = () => performance.now()) {
    this.#bytesPerSec = bytesPerSec;
    this.#now = now;
  }

  /** Resolves when the bytes may be sent. @throws the signal's reason */
  async take(bytes: number, signal?: AbortSignal): Promise<void> {
    const nowMs = this.#now();
    const startMs = Math.max(nowMs, this.#freeAtMs);
    this.#freeAtMs = startMs + (bytes / this.#bytesPerSec) * 1000;
    if (startMs > nowMs) await wait(startMs - nowMs, undefined, { signal });
  }
}

/** Returns a function that writes to a stream and resolves when there is space for more. It fails when the stream does. */
export function writeTo(stream: Writable): (chunk: Buffer) => Promise<void> {
  return async (chunk) => {
    if (stream.write(chunk)) return;
    if (stream.destroyed) throw stream.errored ?? new Error("the output stream was closed");
    const settled = new AbortController();
    try {
      // "close" without an error must end the wait, too.
      await Promise.race([
        once(stream, "drain", { signal: settled.signal }),
        once(stream, "close", { signal: settled.signal }).then(() => {
          throw new Error("the output stream was closed");
        }),
      ]);
    } finally {
      settled.abort();
    }
  };
}
