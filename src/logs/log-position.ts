/** Positions in logs. Not every log has offsets, so a position is a line's time and the number of lines with this time. */

/** The position after a line of a log. */
export interface LogPosition {
  /** Time of the line, Unix milliseconds. */
  readonly timeMs: number;
  /** Lines with this time up to the position. */
  readonly count: number;
  /** Bytes of the log before the position, if its runtime counts them. */
  readonly offset?: number | undefined;
}

/** A reading of a log: leaves out the lines up to a position, and remembers the position after the last line. */
export class NewLines {
  readonly #begin: LogPosition = { timeMs: Date.now(), count: 0 };
  readonly #hasOffset: boolean;
  #position: LogPosition | undefined;
  /** The lines still to leave out; undefined once the position is reached. */
  #repeated: { readonly timeMs: number; count: number } | undefined;

  /** @param after default: the start of the log */
  constructor(after?: LogPosition) {
    this.#hasOffset = after?.offset !== undefined;
    this.#position = after;
    this.#repeated = after && { ...after };
  }

  /** After the last line; without one, the time at which the reading began. */
  get position(): LogPosition {
    return this.#position ?? this.#begin;
  }

  select<L extends { readonly timeMs: number }>({
    lines,
    offset,
  }: {
    readonly lines: readonly L[];
    readonly offset?: number | undefined;
  }): L[] {
    // A runtime with offsets starts exactly at the position.
    if (offset !== undefined && this.#hasOffset) this.#repeated = undefined;
    const selected = lines.filter(({ timeMs }) => this.#isNew(timeMs));
    if (offset !== undefined) this.#position = { ...this.position, offset };
    return selected;
  }

  #isNew(timeMs: number): boolean {
    const repeated = this.#repeated;
    if (repeated !== undefined) {
      if (timeMs < repeated.timeMs) return false;
      const isRepeated = timeMs === repeated.timeMs && repeated.count > 0;
      if (isRepeated) repeated.count--;
      // All later lines are new, also if the clock was set back.
      if (!isRepeated || repeated.count === 0) this.#repeated = undefined;
      if (isRepeated) return false;
    }
    const last = this.#position;
    this.#position = { timeMs, count: last?.timeMs === timeMs ? last.count + 1 : 1 };
    return true;
  }
}
