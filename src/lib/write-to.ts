/** Streams as functions that take bytes. */
import { once } from "node:events";
import type { Writable } from "node:stream";

/** Answers what writes to a stream and resolves when there is room for more. It fails when the stream does. */
export function writeTo(stream: Writable): (chunk: Buffer) => Promise<void> {
  return async (chunk) => {
    if (stream.write(chunk)) return;
    if (stream.destroyed) throw stream.errored ?? new Error("the stream that takes the output was closed");
    const settled = new AbortController();
    try {
      // "close" without an error must end the wait as well.
      await Promise.race([
        once(stream, "drain", { signal: settled.signal }),
        once(stream, "close", { signal: settled.signal }).then(() => {
          throw new Error("the stream that takes the output was closed");
        }),
      ]);
    } finally {
      settled.abort();
    }
  };
}
