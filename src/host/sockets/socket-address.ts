/** Socket addresses as text, cached because thousands of sockets share few addresses. */
import { BoundedMemo } from "../../lib/bounded-memo.ts";

const maxKnown = 4096;

export class SocketAddresses {
  readonly #texts = new BoundedMemo<string, string>(maxKnown);

  /** @param bytes one character per byte, in network order */
  text(bytes: string): string {
    return this.#texts.get(bytes, addressText);
  }
}

function addressText(characters: string): string {
  const bytes = Buffer.from(characters, "latin1");
  if (bytes.length === 4) return bytes.join(".");
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16)).join(":");
  // URL writes addresses in the shortest form (RFC 5952).
  return new URL(`http://[${groups}]`).hostname.slice(1, -1);
}
