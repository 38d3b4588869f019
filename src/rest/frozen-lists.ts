/**
 * The JSON of long lists of frozen messages, as UTF-8 in segments: where one message of a thousand is another, one segment
 * is put together anew, and the others are sent as they were.
 */
import type { DescMessage, Message } from "@bufbuild/protobuf";

interface Segment {
  readonly items: readonly Message[];
  /** With a comma before it. */
  readonly bytes: Buffer;
}

export class FrozenLists {
  readonly #text: (type: DescMessage, item: Message) => string;
  /** Each with a comma before it. */
  readonly #items = new WeakMap<Message, Buffer>();
  /** The segment that was last made with a message as its first. */
  readonly #segments = new WeakMap<Message, Segment>();

  /** @param text the JSON of a message */
  constructor(text: (type: DescMessage, item: Message) => string) {
    this.#text = text;
  }

  /** Adds the bytes of `list`, which holds something, to `pieces`, without its brackets. */
  write(type: DescMessage, list: readonly Message[], pieces: Buffer[]): void {
    const segmentLength = segmentLengthOf(list);
    for (let start = 0; start < list.length; start += segmentLength) {
      const bytes = this.#segment(type, list, start, Math.min(start + segmentLength, list.length));
      pieces.push(start === 0 ? bytes.subarray(1) : bytes);
    }
  }

  #segment(type: DescMessage, list: readonly Message[], start: number, end: number): Buffer {
    const first = list[start] as Message;
    const kept = this.#segments.get(first);
    if (kept !== undefined && isSame(kept.items, list, start, end)) return kept.bytes;
    const items = list.slice(start, end);
    const bytes = Buffer.concat(items.map((item) => this.#item(type, item)));
    this.#segments.set(first, { items, bytes });
    return bytes;
  }

  #item(type: DescMessage, item: Message): Buffer {
    let bytes = this.#items.get(item);
    if (bytes === undefined) {
      bytes = Buffer.from(`,${this.#text(type, item)}`);
      this.#items.set(item, bytes);
    }
    return bytes;
  }
}

/** About the root of the whole: so few segments to send, and so few messages to put together. */
function segmentLengthOf({ length }: readonly Message[]): number {
  return 2 ** Math.floor(Math.log2(length) / 2);
}

function isSame(items: readonly Message[], list: readonly Message[], start: number, end: number): boolean {
  if (items.length !== end - start) return false;
  for (let at = 0; at < items.length; at++) if (items[at] !== list[start + at]) return false;
  return true;
}
