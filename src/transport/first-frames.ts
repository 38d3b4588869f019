/**
 * The HTTP/2 frames that come along with the first bytes of a connection. Node feeds those to a session in one go, and
 * nothing of ours runs until every stream in them is made, reset ones too: 1,800 of them take 100 ms of everybody's time.
 * In later reads each stream is heard of before the next, so that a session over its budget ends in their midst.
 */
import type { Socket } from "node:net";

/** RFC 9113, 3.4. */
const prefaceBytes = 24;
/** Length (24 bits), type (8), flags (8), stream (32); RFC 9113, 4.1. */
const frameHeadBytes = 9;
const headersType = 1;
/** SETTINGS without any, as a server begins, and GOAWAY with ENHANCE_YOUR_CALM. */
const calmDown = Buffer.from("000000040000000000" + "000008070000000000" + "00000000" + "0000000b", "hex");

/** How many streams the first bytes of an HTTP/2 connection open. */
export function countStreams(bytes: Buffer): number {
  let streams = 0;
  for (let at = prefaceBytes; at + frameHeadBytes <= bytes.length;) {
    if (bytes[at + 3] === headersType) streams++;
    at += frameHeadBytes + bytes.readUIntBE(at, 3);
  }
  return streams;
}

/** Ends a connection that no session knows yet, and says why. */
export function refuseFlood(socket: Socket): void {
  socket.on("error", () => undefined);
  socket.write(calmDown);
  socket.destroySoon();
}
