/** Streams that pass bytes on until there are too many of them. */
import { Transform, type Readable } from "node:stream";

/** Fails with `error()` when more than `maxBytes` have passed. */
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

/** What `source` gives, as {@link byteLimit} passes it on; it fails when `source` does, and `source` ends when it does. */
export function limitBytes(source: Readable, maxBytes: number, error: () => Error): Readable {
  const limit = byteLimit(maxBytes, error);
  source.once("error", (cause) => limit.destroy(cause));
  limit.once("close", () => source.destroy());
  return source.pipe(limit);
}
