/** Output of others that comes in pieces: as it is on a pipe, with its control characters escaped on a terminal (T44). */
import { StringDecoder } from "node:string_decoder";
import type { OutputStream } from "../host.ts";
import { drained } from "../transport/http.ts";
import { escapeLines } from "./escape.ts";

export class ByteOutput {
  readonly #stream: OutputStream;
  readonly #decoder = new StringDecoder("utf8");
  /** A carriage return whose line feed may be in the next piece. */
  #held = "";

  constructor(stream: OutputStream) {
    this.#stream = stream;
  }

  /** @param bytes may begin and end within a character; resolves when a slow reader has caught up */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.#stream.isTTY !== true) return this.#send(bytes);
    const text = this.#held + this.#decoder.write(Buffer.from(bytes));
    this.#held = text.endsWith("\r") ? "\r" : "";
    return this.#send(escapeLines(text.slice(0, text.length - this.#held.length)));
  }

  /** What was held back for more to come. */
  async end(): Promise<void> {
    if (this.#stream.isTTY === true) await this.#send(escapeLines(this.#held + this.#decoder.end()));
  }

  async #send(data: string | Uint8Array): Promise<void> {
    // A reader that goes away closes the stream instead.
    if (data.length > 0 && !this.#stream.write(data)) await drained(this.#stream);
  }
}

/** As {@link ByteOutput}, for output that is there as a whole. */
export async function writeOutput(stream: OutputStream, text: string): Promise<void> {
  const output = new ByteOutput(stream);
  await output.write(Buffer.from(text));
  await output.end();
}
