/** Restores the holes of a sparse file: version 1.0 of GNU tar, with a map of its data at the front. */
import { damaged } from "./tar-reader.mjs";

const blockBytes = 512;
export const maxMapBytes = 16 << 20;
const zeros = Buffer.alloc(256 << 10);

export class SparseExpander {
  #size;
  #output;
  #head = Buffer.alloc(0);
  /** @type {{ at: number, bytes: number }[] | undefined} */
  #map;
  #position = 0;
  #remaining = 0;

  /**
   * @param {number} size apparent size of the file
   * @param {(bytes: Buffer) => Promise<void>} output
   */
  constructor(size, output) {
    this.#size = size;
    this.#output = output;
  }

  /** @param {Buffer} bytes */
  async push(bytes) {
    let rest = bytes;
    if (!this.#map) {
      this.#head = Buffer.concat([this.#head, bytes]);
      if (this.#head.length > maxMapBytes) throw damaged("has a sparse file with too many parts");
      const parsed = parseMap(this.#head);
      if (!parsed) return;
      this.#map = parsed.map;
      rest = this.#head.subarray(parsed.end);
    }
    while (rest.length > 0) {
      if (this.#remaining === 0) {
        const next = this.#map.shift();
        if (!next) throw damaged("has a sparse file with more content than its map");
        await this.#hole(next.at);
        this.#remaining = next.bytes;
        continue;
      }
      const piece = rest.subarray(0, this.#remaining);
      await this.#output(piece);
      this.#remaining -= piece.length;
      this.#position += piece.length;
      rest = rest.subarray(piece.length);
    }
  }

  async end() {
    await this.#hole(this.#size);
  }

  /** @param {number} until */
  async #hole(until) {
    if (until < this.#position || until > this.#size) throw damaged("has a sparse file with an invalid map");
    while (this.#position < until) {
      const piece = zeros.subarray(0, until - this.#position);
      await this.#output(piece);
      this.#position += piece.length;
    }
  }
}

/**
 * @param {Buffer} head start of the content
 * @returns the parts and the length of the map; undefined if the map is incomplete
 */
export function parseMap(head) {
  let at = 0;
  const next = () => {
    const end = head.indexOf(0x0a, at);
    if (end < 0) return undefined;
    const digits = head.toString("latin1", at, end);
    if (!/^\d{1,15}$/.test(digits)) throw damaged("has a sparse file with an invalid map");
    at = end + 1;
    return Number(digits);
  };
  const count = next();
  if (count === undefined) return undefined;
  /** @type {{ at: number, bytes: number }[]} */
  const map = [];
  for (let n = 0; n < count; n++) {
    const [start, bytes] = [next(), next()];
    if (start === undefined || bytes === undefined) return undefined;
    map.push({ at: start, bytes });
  }
  const end = Math.ceil(at / blockBytes) * blockBytes;
  return head.length < end ? undefined : { map, end };
}
