/**
 * Caches the JSON of long lists of frozen messages as UTF-8 in segments. If one of a thousand messages is replaced, only its
 * segment is built again.
 */
import type { DescMessage, Message } from "@bufbuild/protobuf";

interface Segment {
  readonly items: readonly Message[];
  /** JSON of the items, each preceded by a comma. */
  readonly bytes: Buffer;
}

export class FrozenLists {
  readonly #text: (type: DescMessage, item: Message) => string;
  /** JSON of each item, preceded by a comma. */
  readonly #items = new WeakMap<Message, Buffer>();
  /** The newest segment by its first message. */
  readonly #segments = new WeakMap<Message, Segment>();

  /** @param text returns the JSON of a message */
  constructor(text: (type: DescMessage, item: Message) => string) {
    this.#text = text;
  }

  /** Adds the JSON of `list`, which must not be empty, to `chunks`, without brackets. */
  write(type: DescMessage, list: readonly Message[], chunks: Buffer[]): void {
    const segmentLength = segmentLengthOf(list);
    for (let start = 0; start < list.length; start += segmentLength) {
      const bytes = this.#segment(type, list, start, Math.min(start + segmentLength, list.length));
      chunks.push(start === 0 ? bytes.subarray(1) : bytes);
    }
  }

  #segment(type: DescMessage, list: readonly Message[], start: number, end: number): Buffer {
    const first = list[start] as Message;
    const cached = this.#segments.get(first);
    if (cached !== undefined && isSame(cached.items, list, start, end)) return cached.bytes;
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

/** About the square root of the length, which keeps both the number of segments and their length small. */
function segmentLengthOf({ length }: readonly Message[]): number {
  return 2 ** Math.floor(Math.log2(length) / 2);
}

function isSame(items: readonly Message[], list: readonly Message[], start: number, end: number): boolean {
  if (items.length !== end - start) return false;
  for (let at = 0; at < items.length; at++) if (items[at] !== list[start + at]) return false;
  return true;
}
