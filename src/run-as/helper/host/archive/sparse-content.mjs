/** Writes the content of a sparse file of an archive of any origin, with its holes. */
import { maxMapBytes, parseMap } from "../../archive/sparse-expander.mjs";
import { damaged } from "../../archive/tar-reader.mjs";

export class SparseContent {
  #sink;
  #size;
  /** The parts that are still to be written; undefined until the map has been read. */
  #parts;
  #head = Buffer.alloc(0);
  #position = 0;
  #left = 0;

  /**
   * @param {import("./unpack-sink.mjs").UnpackSink} sink
   * @param {import("../../archive/tar-reader.mjs").TarEntry} entry without parts, its content starts with the map
   */
  constructor(sink, { size, parts }) {
    this.#sink = sink;
    this.#size = size;
    this.#parts = parts && withoutEmpty(parts);
  }

  /** @param {Buffer} bytes */
  write(bytes) {
    let rest = bytes;
    if (!this.#parts) {
      this.#head = Buffer.concat([this.#head, bytes]);
      if (this.#head.length > maxMapBytes) throw damaged("has a sparse file with too many parts");
      const parsed = parseMap(this.#head);
      if (!parsed) return;
      this.#parts = withoutEmpty(parsed.map);
      rest = this.#head.subarray(parsed.end);
      this.#head = Buffer.alloc(0);
    }
    while (rest.length > 0) {
      if (this.#left === 0) {
        const part = this.#parts.pop();
        if (!part) throw damaged("has a sparse file with more content than its map");
        this.#skipTo(part.at);
        this.#left = part.bytes;
      }
      const piece = rest.subarray(0, this.#left);
      this.#sink.write(piece);
      this.#left -= piece.length;
      this.#position += piece.length;
      rest = rest.subarray(piece.length);
    }
  }

  end() {
    if (!this.#parts || this.#parts.length > 0 || this.#left > 0)
      throw damaged("has a sparse file with less content than its map");
    this.#skipTo(this.#size);
  }

  /** @param {number} position */
  #skipTo(position) {
    if (position < this.#position || position > this.#size)
      throw damaged("has a sparse file with an invalid map");
    this.#sink.skip(position - this.#position);
    this.#position = position;
  }
}

/**
 * The parts with content, the last one first. An empty part only marks the end of the file.
 * @param {import("../../archive/tar-reader.mjs").SparsePart[]} parts
 */
function withoutEmpty(parts) {
  return parts.filter(({ bytes }) => bytes > 0).reverse();
}
