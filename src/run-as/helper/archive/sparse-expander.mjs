/** Writes the content of a sparse file with zeros in place of its holes. */
import { SparsePieces } from "./sparse-pieces.mjs";

const zeros = Buffer.alloc(256 << 10);

export class SparseExpander {
  #pieces;
  #output;

  /**
   * @param {import("./tar-reader.mjs").TarEntry} entry
   * @param {(bytes: Buffer) => Promise<void>} output
   */
  constructor(entry, output) {
    this.#pieces = new SparsePieces(entry);
    this.#output = output;
  }

  /** @param {Buffer} bytes */
  async push(bytes) {
    await this.#write(this.#pieces.push(bytes));
  }

  async end() {
    await this.#write(this.#pieces.end());
  }

  /** @param {import("./sparse-pieces.mjs").Pieces} pieces */
  async #write(pieces) {
    for (const piece of pieces) {
      if (typeof piece !== "number") await this.#output(piece);
      else
        for (let missing = piece; missing > 0; missing -= zeros.length)
          await this.#output(zeros.subarray(0, missing));
    }
  }
}
