/** The addresses of sockets as text; for thousands of sockets that have few. */
import { BoundedMemo } from "../lib/bounded-memo.ts";

const maxKnown = 4096;

export class SocketAddresses {
  readonly #texts = new BoundedMemo<string, string>(maxKnown);

  /** @param bytes one character for each, in the order of the network */
  text(bytes: string): string {
    return this.#texts.get(bytes, addressText);
  }
}

function addressText(characters: string): string {
  const bytes = Buffer.from(characters, "latin1");
  if (bytes.length === 4) return bytes.join(".");
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16)).join(":");
  // The runtime's own URL writes addresses the shortest way (RFC 5952).
  return new URL(`http://[${groups}]`).hostname.slice(1, -1);
}
