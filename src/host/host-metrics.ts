/** Samples of the host, taken by the clock and kept: a day of them in full, a month with one for every five minutes. */
import { readdir } from "node:fs/promises";
import { SvcError } from "../errors.ts";
import type { Clock } from "../lib/clock.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { readFilesystems } from "./filesystems.ts";
import { hostSample, summarize, type HostReading, type HostSample } from "./host-sample.ts";
import { KernelReader } from "./kernel-counters.ts";
import { SampleFiles } from "./sample-files.ts";

export interface HostMetricsOptions {
  /** Where the samples are kept; absolute. */
  dir: string;
  /** Seconds from one sample to the next. */
  intervalSecs: number;
  clock: Clock;
  log: { warn(details: object, message: string): void };
}

export interface HistoryQuestion {
  /** How many of the newest, at most. */
  readonly limit: number;
  /** Unix milliseconds. */
  readonly sinceMs?: number;
  /** Seconds that one sample is to stand for. */
  readonly stepSecs?: number;
}

export interface History {
  /** Oldest first. */
  readonly samples: readonly HostSample[];
  readonly intervalSecs: number;
}

/** Shares and rates need some time to be of, and who asks first is not to wait for long. */
const firstAfterMs = 1_000;
const saveEveryMs = 60_000;
/** What waits for a disk that is full. */
const maxUnsaved = 1_000;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** What one sample stands for in the long history. */
const longStepSecs = 300;
const longStepMs = longStepSecs * 1000;

export class HostMetrics implements AsyncDisposable {
  readonly #options: HostMetricsOptions;
  readonly #kernel = new KernelReader();
  readonly #day: SampleFiles<HostSample>;
  readonly #month: SampleFiles<HostSample>;
  /** Resolves with the next sample. */
  #next = Promise.withResolvers<undefined>();
  #before: HostReading | undefined;
  #newest: HostSample | undefined;
  /** Taken and not on disk yet, oldest first. */
  #unsaved: HostSample[] = [];
  #savedAtMs = 0;
  /** Those of the five minutes that are not over, oldest first. */
  #current: HostSample[] = [];
  #timer: Disposable | undefined;
  #work: Promise<void> = Promise.resolve();
  #isStopped = false;
  /** What failed the last time that it was tried. */
  readonly #failing = new Set<string>();

  constructor(options: HostMetricsOptions) {
    this.#options = options;
    const { dir } = options;
    this.#day = new SampleFiles({
      ...{ dir, level: "day", spanMs: hourMs, maxFiles: 25, maxBytes: 24 * 1024 * 1024 },
    });
    this.#month = new SampleFiles({
      ...{ dir, level: "month", spanMs: dayMs, maxFiles: 31, maxBytes: 12 * 1024 * 1024 },
    });
  }

  start(): void {
    this.#work = this.#begin();
  }

  /** @throws SvcError `not_ready` until the first sample exists */
  newest(): HostSample {
    if (this.#newest !== undefined) return this.#newest;
    const why = "the host's first sample is not taken yet; ask again in a moment";
    throw new SvcError("unavailable", "not_ready", why);
  }

  /** The newest sample, then each new one. A reader that is slow misses some. @throws the signal's reason */
  async *follow(signal: AbortSignal): AsyncGenerator<HostSample, never> {
    for (let last: HostSample | undefined; ;) {
      const next = this.#next.promise;
      if (this.#newest !== undefined && this.#newest !== last) {
        last = this.#newest;
        yield last;
      } else {
        await unlessAborted(next, signal);
      }
    }
  }

  async history({ limit, sinceMs = 0, stepSecs = 0 }: HistoryQuestion): Promise<History> {
    const { intervalSecs: ownSecs, clock } = this.#options;
    const isLong = stepSecs >= longStepSecs || (sinceMs > 0 && sinceMs < clock.nowMs() - dayMs);
    const sourceSecs = isLong ? longStepSecs : ownSecs;
    const intervalSecs = Math.max(stepSecs, sourceSecs);
    const wanted = (limit + 1) * Math.ceil(intervalSecs / sourceSecs);
    const saved = await (isLong ? this.#month : this.#day).newest(wanted, sinceMs);
    const savedUntilMs = saved.at(-1)?.atMs ?? 0;
    const unsaved = isLong ? this.#current : this.#unsaved;
    const all = [...saved, ...unsaved.filter(({ atMs }) => atMs > savedUntilMs && atMs >= sinceMs)];
    const samples =
      intervalSecs === ownSecs ? all : inSteps(all, intervalSecs * 1000).map((step) => summarize(step));
    return { samples: samples.slice(-limit), intervalSecs };
  }

  async #begin(): Promise<void> {
    await this.#attempt("take", async () => {
      this.#before = await this.#read();
    });
    await this.#attempt("read", async () => {
      // What the daemon before this one took, and had no time to sum up.
      const [summed] = (await this.#month.newest(1, 0)).slice(-1);
      for (const sample of await this.#day.newest(Infinity, (summed?.atMs ?? 0) + 1))
        await this.#sumUp(sample);
    });
    this.#savedAtMs = this.#options.clock.monotonicMs();
    this.#plan(firstAfterMs);
  }

  #plan(delayMs: number): void {
    if (this.#isStopped) return;
    this.#timer = this.#options.clock.setTimer(delayMs, () => {
      this.#work = this.#attempt("take", () => this.#sample()).then(() =>
        this.#plan(this.#options.intervalSecs * 1000),
      );
    });
  }

  async #sample(): Promise<void> {
    const reading = await this.#read();
    const sample = hostSample(reading, this.#before ?? reading);
    this.#before = reading;
    this.#newest = sample;
    this.#unsaved = [...this.#unsaved, sample].slice(-maxUnsaved);
    this.#next.resolve(undefined);
    this.#next = Promise.withResolvers();
    await this.#sumUp(sample);
    if (reading.monotonicMs - this.#savedAtMs >= saveEveryMs) await this.#attempt("save", () => this.#save());
  }

  /** Takes a sample into the five minutes that it belongs to, after closing those before. */
  async #sumUp(sample: HostSample): Promise<void> {
    const [first] = this.#current;
    if (first === undefined || stepOf(first, longStepMs) === stepOf(sample, longStepMs)) {
      this.#current.push(sample);
      return;
    }
    const closed = this.#current;
    this.#current = [sample];
    await this.#attempt("save", () => this.#month.append([summarize(closed)]));
  }

  async #save(): Promise<void> {
    const samples = this.#unsaved;
    if (samples.length === 0) return;
    this.#savedAtMs = this.#options.clock.monotonicMs();
    await this.#day.append(samples);
    const until = samples.at(-1)?.atMs ?? 0;
    this.#unsaved = this.#unsaved.filter(({ atMs }) => atMs > until);
  }

  async #read(): Promise<HostReading> {
    const { clock } = this.#options;
    const [filesystems, names] = await Promise.all([
      readFilesystems().catch(() => []),
      readdir("/proc").catch(() => undefined),
    ]);
    const processes = names?.reduce((count, name) => count + Number(/^\d/.test(name)), 0);
    return {
      atMs: clock.nowMs(),
      monotonicMs: clock.monotonicMs(),
      counters: this.#kernel.read(),
      filesystems,
      ...(processes !== undefined && { processes }),
    };
  }

  /** A sample that cannot be taken or kept does not end the others. Said once, until it works again. */
  async #attempt(what: "take" | "save" | "read", work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.#failing.delete(what);
    } catch (error) {
      if (!this.#failing.has(what)) {
        this.#options.log.warn({ err: error }, `samples of the host: cannot ${what} them`);
      }
      this.#failing.add(what);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopped = true;
    this.#timer?.[Symbol.dispose]();
    await this.#work;
    await this.#attempt("save", () => this.#save());
  }
}

function stepOf({ atMs }: HostSample, stepMs: number): number {
  return Math.floor(atMs / stepMs);
}

/** Those of each step together, without steps that have none. */
function inSteps(samples: readonly HostSample[], stepMs: number): HostSample[][] {
  const steps: HostSample[][] = [];
  let at: number | undefined;
  for (const sample of samples) {
    const step = stepOf(sample, stepMs);
    if (step === at) steps.at(-1)?.push(sample);
    else steps.push([sample]);
    at = step;
  }
  return steps;
}
