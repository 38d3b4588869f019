/** Limits the output of a run: keeps its head and tail, with a marker in between if some was dropped. */
import { StringDecoder } from "node:string_decoder";

/** Maximum UTF-8 bytes of output and of error, each. */
export const outputCapBytes = 64 * 1024;
/** Space for the marker. */
const markerBytes = 64;
const headBytes = outputCapBytes / 2;
const tailBytes = outputCapBytes / 2 - markerBytes;
/** Space after the head if nothing is dropped and no marker is needed. */
const restBytes = outputCapBytes - headBytes;

export interface CappedText {
  /** Well-formed, at most `outputCapBytes` in UTF-8; invalid UTF-8 is replaced by U+FFFD. */
  readonly text: string;
  readonly isTruncated: boolean;
}

/** Accepts any amount of bytes, and stores less than three times the limit. */
export class CappedOutput {
  readonly #head: Uint8Array[] = [];
  #headLength = 0;
  #tail: Uint8Array[] = [];
  #tailLength = 0;
  #leftOut = 0;

  push(bytes: Uint8Array): void {
    const rest = this.#fillHead(bytes);
    if (rest.length === 0) return;
    // Copied, because a slice would retain the whole chunk.
    this.#tail.push(Buffer.from(rest.subarray(-restBytes)));
    this.#leftOut += Math.max(0, rest.length - restBytes);
    this.#tailLength += Math.min(rest.length, restBytes);
    // Trimmed rarely, so that many small chunks are not copied repeatedly.
    if (this.#tailLength > 2 * restBytes) this.#trimTail();
  }

  read(): CappedText {
    this.#trimTail();
    const head = Buffer.concat(this.#head);
    const tail = Buffer.concat(this.#tail);
    if (this.#leftOut === 0) return capText(decode(Buffer.concat([head, tail])));
    return join(decode(withoutPartialEnd(head)), decode(withoutPartialStart(tail)), this.#leftOut);
  }

  /** Fills the head. @returns the rest */
  #fillHead(bytes: Uint8Array): Uint8Array {
    const room = headBytes - this.#headLength;
    if (room === 0) return bytes;
    const taken = Buffer.from(bytes.subarray(0, room));
    this.#head.push(taken);
    this.#headLength += taken.length;
    return bytes.subarray(room);
  }

  #trimTail(): void {
    if (this.#leftOut === 0 && this.#tailLength <= restBytes) return;
    if (this.#tailLength <= tailBytes) return;
    const all = Buffer.concat(this.#tail);
    this.#leftOut += all.length - tailBytes;
    this.#tail = [Buffer.from(all.subarray(-tailBytes))];
    this.#tailLength = tailBytes;
  }
}

/** Limits a text in the same way. */
export function capText(text: string): CappedText {
  const bytes = Buffer.from(text);
  if (bytes.length <= outputCapBytes) return { text: text.toWellFormed(), isTruncated: false };
  const head = bytes.subarray(0, headBytes);
  const tail = bytes.subarray(-tailBytes);
  const leftOut = bytes.length - headBytes - tailBytes;
  return join(decode(withoutPartialEnd(head)), decode(withoutPartialStart(tail)), leftOut);
}

function join(head: string, tail: string, leftOutBytes: number): CappedText {
  const marker = `\n[… ${leftOutBytes} bytes omitted …]\n`;
  // Replacing invalid UTF-8 makes it longer.
  const text = `${shorten(head, headBytes, "end")}${marker}${shorten(tail, tailBytes, "start")}`;
  return { text, isTruncated: true };
}

function shorten(text: string, maxBytes: number, side: "start" | "end"): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= maxBytes) return text;
  return side === "end"
    ? decode(withoutPartialEnd(bytes.subarray(0, maxBytes)))
    : decode(withoutPartialStart(bytes.subarray(-maxBytes)));
}

function decode(bytes: Buffer): string {
  return bytes.toString("utf8");
}

/** Drops an incomplete character at the end. */
function withoutPartialEnd(bytes: Buffer): Buffer {
  const decoder = new StringDecoder("utf8");
  decoder.write(bytes);
  const partial = decoder.end();
  if (partial === "") return bytes;
  for (let length = 1; length <= 3; length += 1) {
    const isLead = ((bytes.at(-length) ?? 0) & 0xc0) === 0xc0;
    if (isLead) return bytes.subarray(0, -length);
  }
  return bytes;
}

/** Drops an incomplete character at the start. */
function withoutPartialStart(bytes: Buffer): Buffer {
  let start = 0;
  while (start < 3 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1;
  return bytes.subarray(start);
}
