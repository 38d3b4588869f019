/** Which lines of a log were printed already, where it is followed again behind a daemon that was away. */
import { timestampFromMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import type { CommandContext } from "./context.ts";

interface Line {
  /** RFC 3339, to the millisecond. */
  readonly time?: string | undefined;
}

export interface FollowedLog {
  /** Lines to begin with. */
  readonly tail: number;
  /** All from this instant on instead, Unix milliseconds. */
  readonly sinceMs?: number | undefined;
  /** Whether lines keep their times. */
  readonly timestamps: boolean;
}

/** As the contract has it. */
export interface LogRequest {
  readonly tail: number;
  readonly since?: Timestamp;
  readonly timestamps: true;
}

/** Of a daemon that does not know yet what comes from a moment on. */
const resumeTail = 10_000;

/** A log has no cursor: the time of a line, and how many had that time, tell where it was left. */
export class SeenLines {
  readonly #log: FollowedLog;
  /** Of the last line, Unix milliseconds; lines of this millisecond that were printed. */
  #lastMs = -Infinity;
  #count = 0;
  /** What the tail that is awaited repeats; undefined where there is none. */
  #repeated: { readonly lastMs: number; count: number } | undefined;
  #hasBegun = false;

  constructor({ host }: CommandContext, log: FollowedLog) {
    this.#log = log;
    // Who asks for no old ones gets those from now on.
    if (log.tail === 0) this.#lastMs = host.now();
  }

  /** What to ask for, the first time or again. */
  request(): LogRequest {
    const hasBegun = this.#hasBegun;
    this.#hasBegun = true;
    const { tail, sinceMs } = this.#log;
    if (!hasBegun)
      return { tail, ...(sinceMs !== undefined && { since: timestampFromMs(sinceMs) }), timestamps: true };
    this.#repeated = { lastMs: this.#lastMs, count: this.#count };
    // Where nothing was printed, there is no moment but the beginning.
    return {
      tail: resumeTail,
      since: timestampFromMs(Math.max(sinceMs ?? 0, this.#lastMs)),
      timestamps: true,
    };
  }

  /** What is told, with the lines that are new as they are to be shown; undefined where it was told before. */
  news<L extends Line, T>(
    told: T & { readonly lines: readonly L[] },
  ): (T & { readonly lines: readonly L[] }) | undefined {
    const lines = this.unseen(told.lines);
    return lines.length === 0 && told.lines.length > 0 ? undefined : { ...told, lines };
  }

  /** The lines that are new, as they are to be shown. */
  unseen<L extends Line>(lines: readonly L[]): L[] {
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
      // What stands behind a new line is new.
      this.#repeated = undefined;
    }
    if (ms > this.#lastMs) [this.#lastMs, this.#count] = [ms, 1];
    else if (ms === this.#lastMs) this.#count++;
    return false;
  }
}
