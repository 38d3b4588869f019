/** Bytes that arrive in pieces. Small pieces are joined, because each piece costs about 250 bytes of overhead. */

/** Pieces of at least this size are not joined. */
const smallBytes = 1024;
/** Number of small pieces that are joined at once. */
const maxSmall = 256;

export class ByteList {
  #pieces: Buffer[] = [];
  /** The latest pieces, not joined yet. */
  #small: Buffer[] = [];
  #sizeBytes = 0;

  push(piece: Buffer): void {
    this.#sizeBytes += piece.length;
    this.#small.push(piece);
    if (piece.length >= smallBytes || this.#small.length >= maxSmall) this.#join();
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** All bytes in one piece. */
  get bytes(): Buffer {
    const [first, ...others] = this.pieces;
    return first !== undefined && others.length === 0 ? first : Buffer.concat(this.pieces);
  }

  /** All bytes in order, with small pieces joined. */
  get pieces(): readonly Buffer[] {
    if (this.#small.length > 0) this.#join();
    return this.#pieces;
  }

  /** Removes and returns all pieces. */
  take(): readonly Buffer[] {
    const { pieces } = this;
    this.#pieces = [];
    this.#sizeBytes = 0;
    return pieces;
  }

  #join(): void {
    const last = this.#small.pop();
    const isLarge = last !== undefined && last.length >= smallBytes;
    if (last !== undefined && !isLarge) this.#small.push(last);
    if (this.#small.length > 0) this.#pieces.push(Buffer.concat(this.#small));
    if (isLarge) this.#pieces.push(last);
    this.#small = [];
  }
}
