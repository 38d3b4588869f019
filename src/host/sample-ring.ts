/** Samples of something over time: a day of them in full, a month with one for every five minutes, both on disk. */
import type { Clock } from "../lib/clock.ts";
import { KeyedQueue } from "../lib/keyed-queue.ts";
import { SampleFiles, type Sample } from "./sample-files.ts";
import type { Log } from "../lib/log.ts";

export interface SampleRingOptions<T> {
  /** Where they are kept; absolute. */
  dir: string;
  /** What the names of its files begin with; default nothing. */
  prefix?: string;
  /** Seconds from one sample to the next. */
  intervalSecs: number;
  /** On disk, of the full ones and of the others. */
  maxBytes: { day: number; month: number };
  /** One for the time that several cover. @param samples oldest first, at least one */
  summarize: (samples: readonly T[]) => T;
  clock: Clock;
  /** What they are of, for the log. */
  subject: string;
  log: Pick<Log, "warn">;
}

export interface HistoryQuestion {
  /** How many of the newest, at most. */
  readonly limit: number;
  /** Unix milliseconds. */
  readonly sinceMs?: number;
  /** Seconds that one sample is to stand for. */
  readonly stepSecs?: number;
}

/** Who asks. */
export interface HistoryAsker {
  /** By what name the share of the daemon is known that the work is of. */
  readonly share: string;
  readonly signal: AbortSignal;
}

export interface History<T> {
  /** Oldest first. */
  readonly samples: readonly T[];
  readonly intervalSecs: number;
}

const saveEveryMs = 60_000;
/** What waits for a disk that is full. */
const maxUnsaved = 1_000;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** What one sample stands for in the long history. */
const longStepSecs = 300;
const longStepMs = longStepSecs * 1000;

export class SampleRing<T extends Sample> {
  readonly #options: SampleRingOptions<T>;
  readonly #day: SampleFiles<T>;
  readonly #month: SampleFiles<T>;
  /** Taken and not on disk yet, oldest first. */
  #unsaved: T[] = [];
  #savedAtMs = 0;
  /** Those of the five minutes that are not over, oldest first. */
  #current: T[] = [];
  readonly #asked = new KeyedQueue();
  /** What failed the last time that it was tried. */
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

  /** Takes up what the daemon before this one took, and had no time to sum up. */
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

  /** One at a time for each share, and in memory no more than a file, a step and the answer: a month is some 100 MB of objects. */
  async history(question: HistoryQuestion, { share, signal }: HistoryAsker): Promise<History<T>> {
    return this.#asked.run(share, signal, () => this.#history(question, signal));
  }

  async #history(
    { limit, sinceMs = 0, stepSecs = 0 }: HistoryQuestion,
    signal: AbortSignal,
  ): Promise<History<T>> {
    const { intervalSecs: ownSecs, clock, summarize } = this.#options;
    const isLong = stepSecs >= longStepSecs || (sinceMs > 0 && sinceMs < clock.nowMs() - dayMs);
    const intervalSecs = Math.max(stepSecs, isLong ? Math.max(longStepSecs, ownSecs) : ownSecs);
    const stepMs = intervalSecs * 1000;
    /** Newest first, as are those of the step that is being read. */
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

  /** Those that are not on disk yet come first. In pieces, each the oldest first. */
  async *#newestFirst(isLong: boolean, sinceMs: number): AsyncGenerator<readonly T[], void> {
    const unsaved = (isLong ? this.#current : this.#unsaved).filter(({ atMs }) => atMs >= sinceMs);
    const [oldest] = unsaved;
    yield unsaved;
    for await (const samples of (isLong ? this.#month : this.#day).newestFirst(sinceMs)) {
      // They may have been saved meanwhile.
      yield oldest === undefined ? samples : samples.filter(({ atMs }) => atMs < oldest.atMs);
    }
  }

  /** Writes what is not on disk yet. */
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

  /** Takes a sample into the five minutes that it belongs to, after closing those before. */
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

  /** A sample that cannot be taken or kept does not end the others. Said once, until it works again. */
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
