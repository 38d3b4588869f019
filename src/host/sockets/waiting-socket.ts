/** Listening sockets, and the kernel tables that list them. */
import { BoundedMemo } from "../../lib/bounded-memo.ts";

export interface SocketTable {
  readonly protocol: "tcp" | "udp";
  /** IP version. */
  readonly version: 4 | 6;
}

export interface WaitingSocket {
  readonly protocol: "tcp" | "udp";
  readonly address: string;
  readonly port: number;
  /** The uid that created it. */
  readonly uid: number;
  /** `socket:[inode]` in `/proc/<pid>/fd` of the processes that hold it. */
  readonly inode: number;
}

const maxKnown = 4096;

/** Socket addresses as text, cached because thousands of sockets share few addresses. */
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
