/** Bodies that arrive: whether there is one, reading it within its bounds, and getting rid of one that nobody wants. */
import type { Socket } from "node:net";
import { SvcError, clientGone } from "../errors.ts";
import { smallBodyBytes } from "../lib/body-turns.ts";
import type { BodyTurn } from "../lib/body-turns.ts";
import type { RestRequest, RestResponse } from "./rest-pipeline.ts";

export interface BodyLimits {
  /** Largest body that is read into memory. */
  readonly maxBodyBytes: number;
  /** How long such a body may take to arrive. */
  readonly bodyTimeoutMs: number;
}

/** How long the rest of an unwanted body may drip in after the answer, so that the client gets to read that. */
const lingerMs = 5_000;

/** The declared size; undefined when the body is of unknown size, 0 when there is none. */
export function declaredSize(request: RestRequest): number | undefined {
  const length = request.headers["content-length"];
  if (length !== undefined) return Number(length);
  if (request.httpVersionMajor >= 2) return isEndOfStream(request) ? 0 : undefined;
  return request.headers["transfer-encoding"] === undefined ? 0 : undefined;
}

/** HTTP/2 says with the headers whether a body follows. */
function isEndOfStream(request: RestRequest): boolean {
  return (
    (request as RestRequest & { stream?: { endAfterHeaders?: boolean } }).stream?.endAfterHeaders === true
  );
}

/** The media type of the body in lower case, without its parameters; empty when none is given. */
export function mediaType(request: RestRequest): string {
  const value = request.headers["content-type"];
  return typeof value === "string" ? (value.split(";", 1)[0] ?? "").trim().toLowerCase() : "";
}

/**
 * Reads a whole body.
 * @param turn bounds what its user's bodies take of memory
 * @throws SvcError `body_too_large` as soon as the bound is passed or declared to be, `deadline_exceeded`;
 *   SvcError `canceled` when the client goes away
 */
export function readBody(
  request: RestRequest,
  { maxBodyBytes, bodyTimeoutMs }: BodyLimits,
  turn?: BodyTurn,
): Promise<Uint8Array> {
  const size = declaredSize(request);
  if (size === 0) return Promise.resolve(new Uint8Array());
  if (size !== undefined && size > maxBodyBytes) return Promise.reject(tooLarge(maxBodyBytes));

  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let received = 0;
    const timer = setTimeout(() => {
      const seconds = bodyTimeoutMs / 1000;
      settle(() => reject(new SvcError("deadline_exceeded", `the body did not arrive within ${seconds} s`)));
    }, bodyTimeoutMs);
    const onData = (chunk: Buffer): void => {
      received += chunk.length;
      if (received > maxBodyBytes) {
        settle(() => reject(tooLarge(maxBodyBytes)));
        return;
      }
      chunks.push(chunk);
      const wait = received > smallBodyBytes ? turn?.large() : undefined;
      if (wait === undefined) return;
      request.pause();
      void wait.then(() => request.resume());
    };
    const onEnd = (): void =>
      settle(() => resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks)));
    const onGone = (): void => settle(() => reject(clientGone()));
    const settle = (finish: () => void): void => {
      clearTimeout(timer);
      request.off("data", onData).off("end", onEnd).off("aborted", onGone).off("close", onGone);
      request.pause();
      finish();
    };
    request.on("data", onData).on("end", onEnd).on("aborted", onGone).on("close", onGone);
    // Stays: a reset after the last byte was read has nobody else to hear it.
    request.on("error", onGone);
  });
}

/**
 * Ends the connection (HTTP/1) or the stream (HTTP/2) behind an answer whose request still has a body coming: reading on
 * would let a refused upload cost as much as an accepted one, and closing at once could take the answer with it.
 */
export function discardBody(request: RestRequest, response: RestResponse): void {
  if (request.readableEnded || declaredSize(request) === 0) return;
  request.on("error", () => undefined);
  closeAfterBody(request);
  response.once("finish", () => {
    request.resume();
    const timer = setTimeout(() => request.destroy(), lingerMs);
    request.once("end", () => clearTimeout(timer));
    request.once("close", () => clearTimeout(timer));
  });
}

/**
 * Node closes the connection of HTTP/1.1 right behind an answer that is its last. With unread bytes in it the kernel resets it
 * then, and its client loses the answer: here only the own side is closed before the rest of the body has been read.
 */
function closeAfterBody(request: RestRequest): void {
  const { socket } = request as RestRequest & { readonly socket?: Socket };
  if (request.httpVersionMajor >= 2 || socket === undefined) return;
  const destroySoon = socket.destroySoon.bind(socket);
  socket.destroySoon = () => {
    socket.destroySoon = destroySoon;
    if (request.readableEnded || request.destroyed) {
      destroySoon();
      return;
    }
    socket.end();
    request.once("end", destroySoon).once("close", destroySoon);
  };
}

function tooLarge(maxBodyBytes: number): SvcError {
  return new SvcError("body_too_large", `the body must not be larger than ${maxBodyBytes} bytes`);
}
