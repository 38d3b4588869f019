/**
 * Counts skipped firings in memory before writing, because a minute may skip many and each write waits for
 * the disk.
 */
import type { ScheduleSkipReason } from "../../../gen/svc/v1/values.ts";
import type { Clock } from "../../lib/clock.ts";
import { mapBounded } from "../../lib/map-bounded.ts";
import { keyText, type JobKey } from "../jobs/job.ts";
import type { RunLog } from "./run-log.ts";
import type { Log } from "../../lib/log.ts";

export interface SkipCountsOptions {
  runs: Pick<RunLog, "skip">;
  clock: Clock;
  log: Pick<Log, "warn">;
}

interface Count {
  readonly key: JobKey;
  readonly reason: ScheduleSkipReason;
  count: number;
  lastAtMs: number;
}

/** Milliseconds until counts are written. */
const writeDelayMs = 250;
/** Maximum concurrent writes; the store commits them together. */
const maxWrites = 128;

export class SkipCounts implements AsyncDisposable {
  readonly #options: SkipCountsOptions;
  /** At most one per job and reason. */
  #counts = new Map<string, Count>();
  #timer: Disposable | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(options: SkipCountsOptions) {
    this.#options = options;
  }

  /** @param atMs the firing's minute, or the last one's, unix milliseconds */
  add(key: JobKey, reason: ScheduleSkipReason, atMs: number, count = 1): void {
    const name = `${reason} ${keyText(key)}`;
    const known = this.#counts.get(name);
    if (known === undefined) {
      const { ownerUid, id } = key;
      this.#counts.set(name, { key: { ownerUid, id }, reason, count, lastAtMs: atMs });
    } else {
      known.count += count;
      known.lastAtMs = Math.max(known.lastAtMs, atMs);
    }
    this.#timer ??= this.#options.clock.setTimer(writeDelayMs, () => this.#write());
  }

  #write(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    const counts = [...this.#counts.values()];
    this.#counts = new Map();
    this.#writing = this.#writing.then(() => this.#writeAll(counts));
  }

  async #writeAll(counts: readonly Count[]): Promise<void> {
    const { runs, log } = this.#options;
    try {
      await mapBounded(counts, maxWrites, ({ key, reason, count, lastAtMs }) =>
        runs.skip(key, reason, lastAtMs, count),
      );
    } catch (error) {
      log.warn({ err: error }, "failed to count skipped firings");
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#write();
    await this.#writing;
  }
}
