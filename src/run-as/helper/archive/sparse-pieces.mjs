/** Splits the content of a sparse file of GNU tar into data and holes. */
import { damaged } from "./tar-reader.mjs";

const blockBytes = 512;
const maxMapBytes = 16 << 20;

/** @typedef {import("./tar-reader.mjs").SparsePart} SparsePart */
/** @typedef {Generator<Buffer | number, void, void>} Pieces data, and the lengths of the holes in between */

export class SparsePieces {
  #size;
  /** The parts of the file; undefined until the map at the start of the content has been read. */
  #parts;
  #head = Buffer.alloc(0);
  #nextPart = 0;
  #position = 0;
  #remaining = 0;

  /** @param {Pick<import("./tar-reader.mjs").TarEntry, "size" | "parts">} entry without parts, its content starts with the map */
  constructor({ size, parts }) {
    this.#size = size;
    this.#parts = parts;
  }

  /** @param {Buffer} bytes @returns {Pieces} */
  *push(bytes) {
    let rest = bytes;
    if (!this.#parts) {
      this.#head = Buffer.concat([this.#head, bytes]);
      if (this.#head.length > maxMapBytes) throw damaged("has a sparse file with too many parts");
      const parsed = parseMap(this.#head);
      if (!parsed) return;
      this.#parts = parsed.parts;
      rest = this.#head.subarray(parsed.end);
      this.#head = Buffer.alloc(0);
    }
    while (rest.length > 0) {
      if (this.#remaining === 0) {
        const part = this.#parts[this.#nextPart++];
        if (!part) throw damaged("has a sparse file with more content than its map");
        yield* this.#hole(part.at);
        this.#remaining = part.bytes;
        continue;
      }
      const piece = rest.subarray(0, this.#remaining);
      yield piece;
      this.#remaining -= piece.length;
      this.#position += piece.length;
      rest = rest.subarray(piece.length);
    }
  }

  /** @returns {Pieces} the hole at the end of the file */
  *end() {
    // An empty part only marks the end of the file.
    const isComplete = this.#parts?.slice(this.#nextPart).every(({ bytes }) => bytes === 0) === true;
    if (!isComplete || this.#remaining > 0) throw damaged("has a sparse file with less content than its map");
    yield* this.#hole(this.#size);
  }

  /** @param {number} until @returns {Pieces} */
  *#hole(until) {
    if (until < this.#position || until > this.#size) throw damaged("has a sparse file with an invalid map");
    if (until > this.#position) yield until - this.#position;
    this.#position = until;
  }
}

/**
 * @param {Buffer} head start of the content
 * @returns the parts and the length of the map; undefined if the map is incomplete
 */
function parseMap(head) {
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
  /** @type {SparsePart[]} */
  const parts = [];
  for (let n = 0; n < count; n++) {
    const [start, bytes] = [next(), next()];
    if (start === undefined || bytes === undefined) return undefined;
    parts.push({ at: start, bytes });
  }
  const end = Math.ceil(at / blockBytes) * blockBytes;
  return head.length < end ? undefined : { parts, end };
}
