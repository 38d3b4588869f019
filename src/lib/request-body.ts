/** Bodies that arrive: read within bounds, passed on as they came, or got rid of. */
import type { Socket } from "node:net";
import { smallBodyBytes, type BodyTurn } from "./body-turns.ts";
import { declaredSize, type IncomingRequest, type OutgoingResponse } from "./http-messages.ts";

export interface BodyBounds {
  readonly maxBytes: number;
  /** How long it may take to arrive. Default: whoever made the request bounds it. */
  readonly timeoutMs?: number | undefined;
  /** The turn of a body that is large, among its user's. */
  readonly openTurn: () => BodyTurn;
}

/** `whole`: all of it is there; `large`: there is more than the bound; `cut`: its sender went away; `late`: it did not come in time. */
export type BodyEnd = "whole" | "large" | "cut" | "late";

/** How long the rest of an unwanted body may drip in after the answer, so that the client gets to read that. */
const lingerMs = 5_000;

/** The body of one request. Keeps its turn until it is disposed of. */
export class RequestBody implements Disposable {
  readonly #request: IncomingRequest;
  readonly #chunks: Buffer[] = [];
  #isWhole = false;
  #turn: BodyTurn | undefined;

  constructor(request: IncomingRequest) {
    this.#request = request;
  }

  /** What has been read. */
  get bytes(): Buffer {
    const [first] = this.#chunks;
    return first !== undefined && this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks);
  }

  /** Reads until the end, or until one of the bounds is passed; nothing when it is declared to be too large. Never rejects. */
  read({ maxBytes, timeoutMs, openTurn }: BodyBounds): Promise<BodyEnd> {
    const request = this.#request;
    const size = declaredSize(request);
    if (size !== undefined && size > maxBytes) return Promise.resolve("large");
    return new Promise((resolve) => {
      let sizeBytes = 0;
      let isSettled = false;
      const settle = (end: BodyEnd): void => {
        isSettled = true;
        clearTimeout(timer);
        request.off("data", onData).off("end", onEnd).off("close", onCut);
        this.#isWhole = end === "whole";
        resolve(end);
      };
      const leave = (end: BodyEnd): void => {
        request.pause();
        settle(end);
      };
      const onData = (chunk: Buffer): void => {
        this.#chunks.push(chunk);
        sizeBytes += chunk.length;
        if (sizeBytes > maxBytes) {
          leave("large");
        } else if (sizeBytes > smallBodyBytes) {
          const wait = (this.#turn ??= openTurn()).large();
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
      // Stays: a reset after the last byte was read has nobody else to hear it.
      request.on("error", onCut);
    });
  }

  /** Who iterates over the request from here on gets the body from its first byte. */
  replay(): void {
    const [request, chunks, isWhole] = [this.#request, this.#chunks, this.#isWhole];
    request[Symbol.asyncIterator] = async function* (): AsyncGenerator<Buffer> {
      yield* chunks;
      if (!isWhole) yield* request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
    };
  }

  [Symbol.dispose](): void {
    this.#turn?.[Symbol.dispose]();
  }
}

/** Who iterates over the request from here on may leave early: node would destroy the request then, answer and all. */
export function leaveOpen(request: IncomingRequest): void {
  request[Symbol.asyncIterator] = () => request.iterator({ destroyOnReturn: false });
}

/**
 * For a request that is answered before its body has come, or that somebody reads who may leave early: what is left of it
 * behind the answer is read and dropped, and the connection (HTTP/1) or the stream (HTTP/2) ends with it. Reading on for ever
 * would let a refused upload cost as much as an accepted one, and closing at once could take the answer with it.
 */
export function dropUnread(request: IncomingRequest, response: OutgoingResponse): void {
  if (request.readableEnded || declaredSize(request) === 0) return;
  request.on("error", () => undefined);
  // Ahead of node's own listener, which closes the connection of an answer that is its last.
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
 * Node closes the connection of HTTP/1.1 right behind an answer that is its last. With unread bytes in it the kernel resets it
 * then, and its client loses the answer: here only the own side is closed before the rest of the body has been read.
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
