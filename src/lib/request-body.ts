/** Request bodies: read within limits, replayed, or discarded. */
import type { Socket } from "node:net";
import { smallBodyBytes, type ScheduledBody } from "./body-scheduler.ts";
import { ByteList } from "./byte-list.ts";
import { declaredSize, type IncomingRequest, type OutgoingResponse } from "./http-messages.ts";

export interface BodyBounds {
  readonly maxBytes: number;
  /** Time for the body to arrive. Default: the caller limits it. */
  readonly timeoutMs?: number | undefined;
  /** Called when the body is large, to schedule it among those of its user. */
  readonly openBody: () => ScheduledBody;
}

/** `whole`: complete; `large`: above the limit; `cut`: the client disconnected; `late`: not complete in time. */
export type BodyEnd = "whole" | "large" | "cut" | "late";

/** Milliseconds that an unwanted body may continue after the response, so that the client can read the response. */
const lingerMs = 5_000;

/** The body of one request. Holds its slot until it is disposed. */
export class RequestBody implements Disposable {
  readonly #request: IncomingRequest;
  readonly #chunks = new ByteList();
  #isComplete = false;
  #turn: ScheduledBody | undefined;

  constructor(request: IncomingRequest) {
    this.#request = request;
  }

  /** The bytes read so far. */
  get bytes(): Buffer {
    return this.#chunks.bytes;
  }

  /** Reads until the end, or until a limit is exceeded. Reads nothing if the declared size is too large. Never rejects. */
  read({ maxBytes, timeoutMs, openBody }: BodyBounds): Promise<BodyEnd> {
    const request = this.#request;
    const size = declaredSize(request);
    if (size !== undefined && size > maxBytes) return Promise.resolve("large");
    return new Promise((resolve) => {
      let isSettled = false;
      const settle = (end: BodyEnd): void => {
        isSettled = true;
        clearTimeout(timer);
        request.off("data", onData).off("end", onEnd).off("close", onCut);
        this.#isComplete = end === "whole";
        resolve(end);
      };
      const leave = (end: BodyEnd): void => {
        request.pause();
        settle(end);
      };
      const onData = (chunk: Buffer): void => {
        this.#chunks.push(chunk);
        const { sizeBytes } = this.#chunks;
        if (sizeBytes > maxBytes) {
          leave("large");
        } else if (sizeBytes > smallBodyBytes) {
          const wait = (this.#turn ??= openBody()).beginLarge();
          if (wait === undefined) return;
          request.pause();
          void wait.then(() => {
            if (!isSettled) request.resume();
          });
        }
      };
      const onEnd = (): void => settle("whole");
      const onCut = (): void => settle("cut");
      const timer = timeoutMs === undefined ? undefined : setTimeout(leave, timeoutMs, "late");
      request.on("data", onData).on("end", onEnd).on("close", onCut);
      // Stays registered: a reset after the last byte was read needs an error listener.
      request.on("error", onCut);
    });
  }

  /** A later iteration over the request yields the body from its first byte. */
  replay(): void {
    const [request, chunks, isComplete] = [this.#request, this.#chunks, this.#isComplete];
    request[Symbol.asyncIterator] = async function* (): AsyncGenerator<Buffer> {
      yield* chunks.pieces;
      if (!isComplete) yield* request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
    };
  }

  [Symbol.dispose](): void {
    this.#turn?.[Symbol.dispose]();
  }
}

/** A later iteration over the request may stop early: otherwise Node would destroy the request, including its response. */
export function leaveOpen(request: IncomingRequest): void {
  request[Symbol.asyncIterator] = () => request.iterator({ destroyOnReturn: false });
}

/**
 * For a request that is answered before its body has arrived, or whose reader may stop early. The rest of the body
 * after the response is read and dropped, and the connection (HTTP/1) or the stream (HTTP/2) is closed after it.
 * Reading without limit would make a rejected upload as expensive as an accepted one; closing at once could lose the
 * response.
 */
export function dropUnread(request: IncomingRequest, response: OutgoingResponse): void {
  if (request.readableEnded || declaredSize(request) === 0) return;
  request.on("error", () => undefined);
  // Before Node's own listener, which closes the connection after its last response.
  response.prependOnceListener("finish", () => {
    if (request.readableEnded || request.destroyed) return;
    closeAfterBody(request);
    request.resume();
    const timer = setTimeout(() => request.destroy(), lingerMs);
    const clear = (): void => clearTimeout(timer);
    request.once("end", clear).once("close", clear);
  });
}

/**
 * Node closes an HTTP/1.1 connection right after its last response. If the connection has unread bytes, the kernel
 * resets it, and the client loses the response. So only the sending side is closed until the rest of the body has been
 * read.
 */
function closeAfterBody(request: IncomingRequest): void {
  const { socket } = request as IncomingRequest & { readonly socket?: Socket };
  if (request.httpVersionMajor >= 2 || socket === undefined) return;
  const close = socket.destroySoon.bind(socket);
  socket.destroySoon = () => {
    socket.end();
    request.once("end", close).once("close", close);
  };
  process.nextTick(() => Reflect.deleteProperty(socket, "destroySoon"));
}
