/** Stores samples over time on disk: all samples of a day, and one per five minutes of a month. */
import type { Clock } from "../clock.ts";
import { oneAtATime } from "../limiter.ts";
import { SampleFiles, type Sample } from "./sample-files.ts";
import type { Log } from "../log.ts";

export interface SampleRingOptions<T> {
  /** Directory of the files; absolute. */
  dir: string;
  /** Prefix of file names. Default: none. */
  prefix?: string;
  /** Seconds between two samples. */
  intervalSecs: number;
  /** Maximum size on disk: of all samples of a day, and of the five-minute samples. */
  maxBytes: { day: number; month: number };
  /** Combines several samples into one. @param samples oldest first, at least one */
  summarize: (samples: readonly T[]) => T;
  clock: Clock;
  /** Subject of the samples, for the log. */
  subject: string;
  log: Pick<Log, "warn">;
}

export interface HistoryQuestion {
  /** Maximum number of samples; the newest are returned. */
  readonly limit: number;
  /** Unix milliseconds. */
  readonly sinceMs?: number;
  /** Seconds that one returned sample covers. */
  readonly stepSecs?: number;
}

/** The caller of a query. */
export interface HistoryCaller {
  /** Name of the share of the daemon's limits that the query uses. */
  readonly share: string;
  readonly signal: AbortSignal;
}

export interface History<T> {
  /** Oldest first. */
  readonly samples: readonly T[];
  readonly intervalSecs: number;
}

const saveEveryMs = 60_000;
/** Samples that wait while the disk is full. */
const maxUnsaved = 1_000;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** Seconds that one sample of the long history covers. */
const longStepSecs = 300;
const longStepMs = longStepSecs * 1000;

export class SampleRing<T extends Sample> {
  readonly #options: SampleRingOptions<T>;
  readonly #day: SampleFiles<T>;
  readonly #month: SampleFiles<T>;
  /** Samples that are not on disk yet, oldest first. */
  #unsaved: T[] = [];
  #savedAtMs = 0;
  /** Samples of the current five minutes, oldest first. */
  #current: T[] = [];
  /** Histories, by share. */
  readonly #histories = oneAtATime<string>();
  /** Operations that failed the last time. */
  readonly #failing = new Set<string>();

  constructor(options: SampleRingOptions<T>) {
    this.#options = options;
    const { dir, prefix = "", maxBytes } = options;
    this.#day = new SampleFiles({
      ...{ dir, level: `${prefix}day`, spanMs: hourMs, maxFiles: 25, maxBytes: maxBytes.day },
    });
    this.#month = new SampleFiles({
      ...{ dir, level: `${prefix}month`, spanMs: dayMs, maxFiles: 31, maxBytes: maxBytes.month },
    });
  }

  /** Reads samples of an earlier daemon that were not combined yet. */
  async open(): Promise<void> {
    await this.attempt("read", async () => {
      const [summed] = (await this.#month.newest(1, 0)).slice(-1);
      for (const sample of await this.#day.newest(Infinity, (summed?.atMs ?? 0) + 1))
        await this.#sumUp(sample);
    });
    this.#savedAtMs = this.#options.clock.monotonicMs();
  }

  async add(sample: T): Promise<void> {
    this.#unsaved = [...this.#unsaved, sample].slice(-maxUnsaved);
    await this.#sumUp(sample);
    if (this.#options.clock.monotonicMs() - this.#savedAtMs >= saveEveryMs) await this.save();
  }

  /**
   * One query at a time per share. Memory holds only one file, one step and the response: a month is about 100 MB of
   * objects.
   */
  async history(question: HistoryQuestion, { share, signal }: HistoryCaller): Promise<History<T>> {
    using _slot = await this.#histories.acquire(share, signal);
    return await this.#history(question, signal);
  }

  async #history(
    { limit, sinceMs = 0, stepSecs = 0 }: HistoryQuestion,
    signal: AbortSignal,
  ): Promise<History<T>> {
    const { intervalSecs: ownSecs, clock, summarize } = this.#options;
    const isLong = stepSecs >= longStepSecs || (sinceMs > 0 && sinceMs < clock.nowMs() - dayMs);
    const intervalSecs = Math.max(stepSecs, isLong ? Math.max(longStepSecs, ownSecs) : ownSecs);
    const stepMs = intervalSecs * 1000;
    /** Newest first, like the samples of the current step. */
    const answer: T[] = [];
    let step: T[] = [];
    const close = (): void => {
      const [newest] = step;
      if (newest !== undefined) answer.push(intervalSecs === ownSecs ? newest : summarize(step.toReversed()));
      step = [];
    };
    for await (const samples of this.#newestFirst(isLong, sinceMs)) {
      signal.throwIfAborted();
      for (const sample of samples.toReversed()) {
        const [newest] = step;
        const isOther = newest !== undefined && stepOf(newest, stepMs) !== stepOf(sample, stepMs);
        if (isOther || intervalSecs === ownSecs) close();
        if (answer.length >= limit) break;
        step.push(sample);
      }
      if (answer.length >= limit) break;
    }
    close();
    return { samples: answer.toReversed(), intervalSecs };
  }

  /** Yields pieces, newest first, starting with samples that are not on disk yet. Each piece has its oldest sample first. */
  async *#newestFirst(isLong: boolean, sinceMs: number): AsyncGenerator<readonly T[], void> {
    const unsaved = (isLong ? this.#current : this.#unsaved).filter(({ atMs }) => atMs >= sinceMs);
    const [oldest] = unsaved;
    yield unsaved;
    for await (const samples of (isLong ? this.#month : this.#day).newestFirst(sinceMs)) {
      // Unsaved samples may have been saved in the meantime.
      yield oldest === undefined ? samples : samples.filter(({ atMs }) => atMs < oldest.atMs);
    }
  }

  /** Writes samples that are not on disk yet. */
  async save(): Promise<void> {
    await this.attempt("save", async () => {
      const samples = this.#unsaved;
      if (samples.length === 0) return;
      this.#savedAtMs = this.#options.clock.monotonicMs();
      await this.#day.append(samples);
      const until = samples.at(-1)?.atMs ?? 0;
      this.#unsaved = this.#unsaved.filter(({ atMs }) => atMs > until);
    });
  }

  /** Adds a sample to its five minutes, after closing the previous five minutes. */
  async #sumUp(sample: T): Promise<void> {
    const [first] = this.#current;
    if (first === undefined || stepOf(first, longStepMs) === stepOf(sample, longStepMs)) {
      this.#current.push(sample);
      return;
    }
    const closed = this.#current;
    this.#current = [sample];
    await this.attempt("save", () => this.#month.append([this.#options.summarize(closed)]));
  }

  /** Runs an operation whose failure must not stop the sampling. A failure is logged once, until the operation works again. */
  async attempt(what: "take" | "save" | "read", work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.#failing.delete(what);
    } catch (error) {
      const { log, subject } = this.#options;
      if (!this.#failing.has(what)) log.warn({ err: error }, `samples of ${subject}: cannot ${what} them`);
      this.#failing.add(what);
    }
  }
}

function stepOf({ atMs }: Sample, stepMs: number): number {
  return Math.floor(atMs / stepMs);
}
