/** Reads the tar of an archive by position, forward only. Frames are verified and decompressed ahead. */
import { openFrame, sha256, tableRowBytes } from "./frames.mjs";
import { damaged } from "./tar-reader.mjs";

/** Frames that are decompressed ahead. */
const ahead = 3;

/**
 * @typedef {object} FrameRow
 * @property {number} number
 * @property {number} storedAt offset of the frame in the archive
 * @property {number} length
 * @property {number} rawAt offset of its content in the tar
 * @property {number} rawLength
 * @property {Buffer} sha256
 */

/**
 * @param {Buffer} table
 * @param {number} tarBytes expected total of the frames
 * @returns {FrameRow[]}
 */
export function readTable(table, tarBytes) {
  /** @type {FrameRow[]} */
  const rows = [];
  let [storedAt, rawAt] = [0, 0];
  for (let at = 0; at + tableRowBytes <= table.length; at += tableRowBytes) {
    const [length, rawLength] = [table.readUInt32LE(at), table.readUInt32LE(at + 4)];
    rows.push({
      number: rows.length,
      storedAt,
      length,
      rawAt,
      rawLength,
      sha256: table.subarray(at + 8, at + tableRowBytes),
    });
    storedAt += length;
    rawAt += rawLength;
  }
  if (rawAt !== tarBytes || table.length % tableRowBytes !== 0) {
    throw damaged("has a table of frames that disagrees with its end");
  }
  return rows;
}

export class FrameCursor {
  #rows;
  #source;
  #next = 0;
  /** @type {{ row: FrameRow, raw: Promise<Buffer> }[]} */
  #open = [];
  /** @type {{ row: FrameRow, raw: Buffer } | undefined} */
  #current;

  /**
   * @param {FrameRow[]} rows the frames in the input, in order
   * @param {import("./byte-source.mjs").ByteSource} source
   */
  constructor(rows, source) {
    this.#rows = rows;
    this.#source = source;
  }

  /**
   * Returns bytes from a position: at least one byte, at most the rest of a frame.
   * @param {number} position
   * @returns {Promise<Buffer>}
   */
  async from(position) {
    for (;;) {
      const current = this.#current;
      if (current && position < current.row.rawAt) break;
      if (current && position < current.row.rawAt + current.row.rawLength) {
        return current.raw.subarray(position - current.row.rawAt);
      }
      if (!(await this.#advance())) break;
    }
    throw damaged("has fewer bytes than its index declares");
  }

  /** Verifies the remaining frames, too. */
  async finish() {
    while (await this.#advance());
  }

  async #advance() {
    while (this.#open.length < ahead && this.#next < this.#rows.length) {
      const row = this.#rows[this.#next++];
      if (!row) break;
      const frame = await this.#source.take(row.length);
      if (!sha256(frame).equals(row.sha256)) throw damaged(`is damaged in frame ${row.number}`);
      const raw = openFrame(frame, row.rawLength);
      // The rejection is handled when it is awaited.
      raw.catch(() => undefined);
      this.#open.push({ row, raw });
    }
    const first = this.#open.shift();
    this.#current = first && { row: first.row, raw: await first.raw };
    return first !== undefined;
  }
}
