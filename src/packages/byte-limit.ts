/** A stream that passes bytes on until there are too many of them. */
import { Transform } from "node:stream";

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
