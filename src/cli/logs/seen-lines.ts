/** Remembers which lines of a log were already printed, to resume following after the daemon was unavailable. */
import { timestampFromMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import type { CommandContext } from "../context.ts";

interface Line {
  /** RFC 3339, to the millisecond. */
  readonly time?: string | undefined;
}

export interface FollowedLog {
  /** Number of existing lines to begin with. */
  readonly tail: number;
  /** All lines from this instant on instead, Unix milliseconds. */
  readonly sinceMs?: number | undefined;
  /** Whether lines keep their times. */
  readonly timestamps: boolean;
}

/** The fields of the contract's log requests. */
export interface LogRequest {
  readonly tail: number;
  readonly since?: Timestamp;
  readonly timestamps: true;
}

/** Lines to request on resuming, for a daemon that does not support `since`. */
const resumeTail = 10_000;

/** A log has no cursor. The time of the last line, and the number of lines with that time, mark the position. */
export class SeenLines {
  readonly #log: FollowedLog;
  /** Time of the last printed line in Unix milliseconds, and how many printed lines have this time. */
  #lastMs = -Infinity;
  #count = 0;
  /** The position up to which the next response repeats printed lines; undefined if it repeats none. */
  #repeated: { readonly lastMs: number; count: number } | undefined;
  #hasBegun = false;

  constructor({ host }: CommandContext, log: FollowedLog) {
    this.#log = log;
    // Without existing lines, start from now.
    if (log.tail === 0) this.#lastMs = host.now();
  }

  /** The request for the first or any later subscription. */
  request(): LogRequest {
    const isResuming = this.#hasBegun;
    this.#hasBegun = true;
    const { tail, sinceMs } = this.#log;
    if (!isResuming)
      return { tail, ...(sinceMs !== undefined && { since: timestampFromMs(sinceMs) }), timestamps: true };
    this.#repeated = { lastMs: this.#lastMs, count: this.#count };
    // If nothing was printed yet, resume from the beginning.
    return {
      tail: resumeTail,
      since: timestampFromMs(Math.max(sinceMs ?? 0, this.#lastMs)),
      timestamps: true,
    };
  }

  /** The response with only its new lines, ready to show; undefined if all its lines are repeated. */
  withNewLines<L extends Line, T>(
    response: T & { readonly lines: readonly L[] },
  ): (T & { readonly lines: readonly L[] }) | undefined {
    const lines = this.newLines(response.lines);
    return lines.length === 0 && response.lines.length > 0 ? undefined : { ...response, lines };
  }

  /** The new lines, ready to show. */
  newLines<L extends Line>(lines: readonly L[]): L[] {
    return lines
      .filter((line) => !this.#isRepeated(line))
      .map((line) => {
        if (this.#log.timestamps) return line;
        const { time: _time, ...shown } = line;
        return shown as L;
      });
  }

  #isRepeated({ time }: Line): boolean {
    const ms = time === undefined ? Number.NaN : Date.parse(time);
    const repeated = this.#repeated;
    if (repeated !== undefined) {
      if (ms < repeated.lastMs) return true;
      if (ms === repeated.lastMs && repeated.count-- > 0) return true;
      // All lines after a new line are new.
      this.#repeated = undefined;
    }
    if (ms > this.#lastMs) [this.#lastMs, this.#count] = [ms, 1];
    else if (ms === this.#lastMs) this.#count++;
    return false;
  }
}
