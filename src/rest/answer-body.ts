/** JSON bodies on their way out: made for one answer, or kept and sent again and again. */
import type { OutgoingResponse } from "../lib/http-messages.ts";

export interface AnswerBody {
  readonly sizeBytes: number;
  /** Sends it as all of the response's body. */
  send(response: OutgoingResponse): void;
}

/** Up to here, in characters, a text goes out in one write together with its headers, which beats ready bytes. */
const smallTextLength = 4096;

export class TextBody implements AnswerBody {
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

/** In pieces, which others may share, as long as it is not certain that it is sent twice: joining them copies it all. */
export class KeptBody implements AnswerBody {
  readonly sizeBytes: number;
  #pieces: readonly Buffer[];
  #isSent = false;
  #whole: string | Buffer | undefined;

  constructor(pieces: readonly Buffer[]) {
    this.#pieces = pieces;
    this.sizeBytes = pieces.reduce((sum, { length }) => sum + length, 0);
  }

  send(response: OutgoingResponse): void {
    if (this.#whole === undefined && (this.#isSent || this.sizeBytes < smallTextLength)) {
      const bytes = Buffer.concat(this.#pieces);
      this.#whole = bytes.length < smallTextLength ? bytes.toString() : bytes;
      this.#pieces = [];
    }
    this.#isSent = true;
    if (this.#whole === undefined) sendPieces(response, this.#pieces);
    else sendWhole(response, this.#whole, this.sizeBytes);
  }
}

/** A text of ASCII alone needs no translation to UTF-8: most are. */
function sendWhole(response: OutgoingResponse, content: string | Buffer, sizeBytes: number): void {
  if (content.length === sizeBytes) response.end(content, "latin1");
  else response.end(content);
}

/** All in one write of the connection, where it can do that. Nothing to wait for: they are in memory already. */
function sendPieces(response: OutgoingResponse, pieces: readonly Buffer[]): void {
  response.cork?.();
  for (const piece of pieces) response.write(piece);
  response.uncork?.();
  response.end();
}
