/** The body of a request that is likely small, read whole; a larger one, or an odd one, is left to another reader. */
import type { Readable } from "node:stream";

/** What has been read of a body. */
export interface ReadBody {
  readonly chunks: readonly Buffer[];
  /** `whole`: all of it; `large`: more is to come; `cut`: its sender went away; `late`: it did not come in time. */
  readonly end: "whole" | "large" | "cut" | "late";
}

/**
 * Reads until the end of the body, or until there is more than `maxBytes` of it. Never rejects.
 * @param timeoutMs how long that may take; undefined: whoever made the request bounds it
 */
export function readSmallBody(request: Readable, maxBytes: number, timeoutMs?: number): Promise<ReadBody> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let sizeBytes = 0;
    const settle = (end: ReadBody["end"]): void => {
      clearTimeout(timer);
      request.off("data", onData).off("end", onEnd).off("close", onCut);
      resolve({ chunks, end });
    };
    const onData = (chunk: Buffer): void => {
      chunks.push(chunk);
      sizeBytes += chunk.length;
      if (sizeBytes > maxBytes) leave("large");
    };
    const leave = (end: ReadBody["end"]): void => {
      request.pause();
      settle(end);
    };
    const onEnd = (): void => settle("whole");
    const onCut = (): void => settle("cut");
    const timer = timeoutMs === undefined ? undefined : setTimeout(leave, timeoutMs, "late");
    request.on("data", onData).on("end", onEnd).on("close", onCut);
    // Stays: a reset after the last byte was read has nobody else to hear it.
    request.on("error", onCut);
  });
}

/** Who iterates over the request from here on gets the body from its first byte. */
export function replayBody(request: Readable, { chunks, end }: ReadBody): void {
  request[Symbol.asyncIterator] = async function* (): AsyncGenerator<Buffer> {
    yield* chunks;
    if (end === "large") yield* request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  };
}
