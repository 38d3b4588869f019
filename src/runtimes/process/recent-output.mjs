/** The latest output of a terminal, shared by all watchers so that none of them needs its own buffer. */

const newlineByte = 10;
const capacityBytes = 256 * 1024;
/** Size of one {@link RecentOutput.read}. */
const pieceBytes = 64 * 1024;
/** Switch to and from the alternate screen, which editors use. */
const screenBegin = Buffer.from("\x1b[?1049h");
const screenEnd = Buffer.from("\x1b[?1049l");

/** Positions count the bytes since the start. */
export class RecentOutput {
  #ring = Buffer.alloc(capacityBytes);
  #end = 0;

  get end() {
    return this.#end;
  }

  /** Position of the oldest buffered byte. */
  get start() {
    return Math.max(0, this.#end - capacityBytes);
  }

  /** @param {Buffer} chunk */
  push(chunk) {
    for (let from = 0; from < chunk.length;) {
      const at = this.#end % capacityBytes;
      const length = chunk.copy(this.#ring, at, from);
      from += length;
      this.#end += length;
    }
  }

  /**
   * A piece of the buffered output after a position.
   * @param {number} from
   * @returns {Buffer} a copy
   */
  read(from) {
    return this.#copy(from, Math.min(this.#end, from + pieceBytes));
  }

  /**
   * Position from which to read to show a screen of this many lines.
   * @param {number} rows
   */
  screenStart(rows) {
    const retained = this.#copy(this.start, this.#end);
    const painted = retained.lastIndexOf(screenBegin);
    if (painted >= 0 && painted > retained.lastIndexOf(screenEnd)) return this.start + painted;
    let at = retained.length;
    // No line begins after the final newline.
    if (retained.at(-1) === newlineByte) at -= 1;
    for (let row = 0; row < rows && at >= 0; row++)
      at = at === 0 ? -1 : retained.lastIndexOf(newlineByte, at - 1);
    if (at >= 0) return this.start + at + 1;
    let whole = 0;
    // The buffer may begin in the middle of a character.
    while (this.start > 0 && whole < 4 && ((retained[whole] ?? 0) & 0xc0) === 0x80) whole++;
    return this.start + whole;
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  #copy(from, to) {
    const [at, end] = [from % capacityBytes, to % capacityBytes];
    if (to <= from) return Buffer.alloc(0);
    if (at < end) return Buffer.from(this.#ring.subarray(at, end));
    return Buffer.concat([this.#ring.subarray(at), this.#ring.subarray(0, end)]);
  }
}
