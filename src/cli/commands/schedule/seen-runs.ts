/** Which runs were told of already, where they are followed again behind a daemon that was away. */
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { CommandContext } from "../../context.ts";
import type { ScheduleRun } from "../../transport/calls.ts";

/** News come in the order in which they are written down, which may differ a little from that of their times. */
const overlapMs = 5_000;

export class SeenRuns {
  /** When the first and the last news were, unix milliseconds: by the clock of the daemon, once it has told any. */
  #firstMs: number;
  #lastMs: number;
  #hasBegun = false;
  /** What was told, and when it was. */
  readonly #told = new Map<string, number>();

  constructor({ host }: CommandContext) {
    this.#firstMs = this.#lastMs = host.now();
  }

  /** What to ask for, the first time or again. */
  request(): { since?: ReturnType<typeof timestampFromMs> } {
    const hadBegun = this.#hasBegun;
    this.#hasBegun = true;
    if (!hadBegun) return {};
    return { since: timestampFromMs(Math.max(this.#firstMs, this.#lastMs - overlapMs)) };
  }

  isNew(run: ScheduleRun): boolean {
    const atMs = Date.parse(run.ended_at ?? run.started_at ?? "");
    const key = `${run.owner} ${run.id} ${run.ended_at === undefined}`;
    if (this.#told.has(key)) return false;
    if (this.#told.size === 0) this.#firstMs = this.#lastMs = atMs;
    this.#lastMs = Math.max(this.#lastMs, atMs);
    this.#told.set(key, atMs);
    for (const [told, toldMs] of this.#told) {
      if (toldMs < this.#lastMs - 2 * overlapMs) this.#told.delete(told);
    }
    return true;
  }
}
