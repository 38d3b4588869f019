/** Collects the output of a command. */
import { StringDecoder } from "node:string_decoder";

/** Longest line that is sent in one piece, in characters. */
const maxLineLength = 16 << 10;

/** Keeps the last bytes of a stream. */
export class LastBytes {
  #max;
  /** @type {Buffer[]} */
  #chunks = [];
  #bytes = 0;
  dropped = false;

  /** @param {number} max */
  constructor(max) {
    this.#max = max;
  }

  /** @param {Buffer} chunk */
  push(chunk) {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    // Trims rarely, so that many small chunks are not copied repeatedly.
    if (this.#bytes > 2 * this.#max + 65_536) this.#trim();
  }

  bytes() {
    this.#trim();
    return this.#chunks[0] ?? Buffer.alloc(0);
  }

  #trim() {
    const all = Buffer.concat(this.#chunks);
    if (all.length > this.#max) this.dropped = true;
    // A copy, so that the slice does not keep the dropped bytes in memory.
    const tail = Buffer.from(all.subarray(Math.max(0, all.length - this.#max)));
    this.#chunks = [tail];
    this.#bytes = tail.length;
  }
}

/** Splits a stream of bytes into lines of text. */
export class LineSplitter {
  #decoder = new StringDecoder("utf8");
  #rest = "";

  /**
   * @param {Buffer} chunk
   * @returns {string[]}
   */
  push(chunk) {
    const lines = (this.#rest + this.#decoder.write(chunk)).split("\n");
    this.#rest = lines.pop() ?? "";
    const pieces = lines.flatMap(cut);
    while (this.#rest.length > maxLineLength) {
      pieces.push(this.#rest.slice(0, maxLineLength));
      this.#rest = this.#rest.slice(maxLineLength);
    }
    return pieces;
  }

  /** @returns {string[]} the last line if it does not end with a newline */
  end() {
    const rest = this.#rest + this.#decoder.end();
    return rest === "" ? [] : cut(rest);
  }
}

/** @param {string} line */
function cut(line) {
  const pieces = [];
  for (let start = 0; start === 0 || start < line.length; start += maxLineLength) {
    pieces.push(line.slice(start, start + maxLineLength));
  }
  return pieces;
}
