import { PassThrough } from "node:stream";
import { writeTo } from "../lib/byte-streams.ts";
import type { Op } from "./helper-protocol.ts";
import type { Ask, HelperRequest } from "./pending-request.ts";

/** Streams the output of a request. Destroying the stream cancels the request. */
export function answerStream<O extends Op>(
  ask: Ask,
  { signal, ...request }: Omit<HelperRequest<O>, "output">,
  options: { highWaterMark?: number } = {},
): PassThrough {
  const gone = new AbortController();
  const bytes = new PassThrough({
    ...options,
    destroy(error, done) {
      gone.abort();
      done(error);
    },
  });
  ask({
    ...request,
    signal: signal ? AbortSignal.any([gone.signal, signal]) : gone.signal,
    output: writeTo(bytes),
  }).then(
    () => bytes.end(),
    (error: unknown) => bytes.destroy(error instanceof Error ? error : new Error(String(error))),
  );
  return bytes;
}
