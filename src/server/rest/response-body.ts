/** JSON bodies of responses: for one response, or cached and sent many times. */
import type { OutgoingResponse } from "../../lib/http-messages.ts";

export interface ResponseBody {
  readonly sizeBytes: number;
  /** Sends the whole body and ends the response. */
  send(response: OutgoingResponse): void;
}

/** In characters. Node sends a shorter text in one write with the headers, which is faster than sending encoded bytes. */
const smallTextLength = 4096;

export class TextBody implements ResponseBody {
  readonly sizeBytes: number;
  readonly #content: string | Buffer;

  constructor(text: string) {
    this.#content = text.length < smallTextLength ? text : Buffer.from(text);
    this.sizeBytes = Buffer.byteLength(this.#content);
  }

  send(response: OutgoingResponse): void {
    sendWhole(response, this.#content, this.sizeBytes);
  }
}

/** A body in chunks, which other bodies may share. It is joined when it is sent for the second time, because joining copies it. */
export class CachedBody implements ResponseBody {
  readonly sizeBytes: number;
  #chunks: readonly Buffer[];
  #isSent = false;
  #whole: string | Buffer | undefined;

  constructor(chunks: readonly Buffer[]) {
    this.#chunks = chunks;
    this.sizeBytes = chunks.reduce((sum, { length }) => sum + length, 0);
  }

  send(response: OutgoingResponse): void {
    if (this.#whole === undefined && (this.#isSent || this.sizeBytes < smallTextLength)) {
      const bytes = Buffer.concat(this.#chunks);
      this.#whole = bytes.length < smallTextLength ? bytes.toString() : bytes;
      this.#chunks = [];
    }
    this.#isSent = true;
    if (this.#whole === undefined) sendChunks(response, this.#chunks);
    else sendWhole(response, this.#whole, this.sizeBytes);
  }
}

/** Most texts are ASCII, which needs no conversion to UTF-8. */
function sendWhole(response: OutgoingResponse, content: string | Buffer, sizeBytes: number): void {
  if (content.length === sizeBytes) response.end(content, "latin1");
  else response.end(content);
}

/** Sends all chunks in one write if the connection supports it. Backpressure does not matter, because they are in memory. */
function sendChunks(response: OutgoingResponse, chunks: readonly Buffer[]): void {
  response.cork?.();
  for (const chunk of chunks) response.write(chunk);
  response.uncork?.();
  response.end();
}
