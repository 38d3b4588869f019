/** Remembers which runs were already shown, to resume following after the daemon was unavailable. */
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { CommandContext } from "../../context.ts";
import type { ScheduleRun } from "../../client/calls.ts";

/**
 * Milliseconds. Reports arrive in the order in which they are stored, which may differ slightly from the
 * order of their times.
 */
const overlapMs = 5_000;

export class SeenRuns {
  /** Times of the first and the last report in Unix milliseconds, by the daemon's clock once a report has arrived. */
  #firstMs: number;
  #lastMs: number;
  #hasBegun = false;
  /** Reports that were shown, with their times. */
  readonly #shown = new Map<string, number>();

  constructor({ host }: CommandContext) {
    this.#firstMs = this.#lastMs = host.now();
  }

  /** The request for the first or any later subscription. */
  request(): { since?: ReturnType<typeof timestampFromMs> } {
    const isResuming = this.#hasBegun;
    this.#hasBegun = true;
    if (!isResuming) return {};
    return { since: timestampFromMs(Math.max(this.#firstMs, this.#lastMs - overlapMs)) };
  }

  isNew(run: ScheduleRun): boolean {
    const atMs = Date.parse(run.ended_at ?? run.started_at ?? "");
    const key = `${run.owner} ${run.id} ${run.ended_at === undefined}`;
    if (this.#shown.has(key)) return false;
    if (this.#shown.size === 0) this.#firstMs = this.#lastMs = atMs;
    this.#lastMs = Math.max(this.#lastMs, atMs);
    this.#shown.set(key, atMs);
    for (const [key, reportMs] of this.#shown) {
      if (reportMs < this.#lastMs - 2 * overlapMs) this.#shown.delete(key);
    }
    return true;
  }
}
