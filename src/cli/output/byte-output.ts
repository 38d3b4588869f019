/**
 * Untrusted output that arrives in pieces: unchanged on a pipe, with control characters escaped on a
 * terminal, where they could hide or imitate text.
 */
import { StringDecoder } from "node:string_decoder";
import type { OutputStream } from "../host.ts";
import { untilDrained } from "../client/http.ts";
import { escapeLines } from "./escape.ts";

export class ByteOutput {
  readonly #stream: OutputStream;
  readonly #decoder = new StringDecoder("utf8");
  /** A carriage return whose line feed may be in the next piece. */
  #pending = "";

  constructor(stream: OutputStream) {
    this.#stream = stream;
  }

  /** @param bytes may begin and end within a character; resolves when a slow reader has caught up */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.#stream.isTTY !== true) return this.#send(bytes);
    const text = this.#pending + this.#decoder.write(Buffer.from(bytes));
    this.#pending = text.endsWith("\r") ? "\r" : "";
    return this.#send(escapeLines(text.slice(0, text.length - this.#pending.length)));
  }

  /** Writes the rest, which waited for the next piece. */
  async end(): Promise<void> {
    if (this.#stream.isTTY === true) await this.#send(escapeLines(this.#pending + this.#decoder.end()));
  }

  async #send(data: string | Uint8Array): Promise<void> {
    // If the reader goes away, the stream closes instead of draining.
    if (data.length > 0 && !this.#stream.write(data)) await untilDrained(this.#stream);
  }
}

/** Like {@link ByteOutput}, for complete output. */
export async function writeOutput(stream: OutputStream, text: string): Promise<void> {
  const output = new ByteOutput(stream);
  await output.write(Buffer.from(text));
  await output.end();
}
