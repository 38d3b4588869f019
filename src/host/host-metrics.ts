/** Samples of the host, taken by the clock and kept: a day of them in full, a month with one for every five minutes. */
import { readdir } from "node:fs/promises";
import { SvcError } from "../errors.ts";
import type { Clock } from "../lib/clock.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { readFilesystems } from "./filesystems.ts";
import { hostSample, summarize, type HostReading, type HostSample } from "./host-sample.ts";
import { KernelReader, type KernelCounters } from "./kernel-counters.ts";
import { SampleRing, type History, type HistoryAsker, type HistoryQuestion } from "./sample-ring.ts";
import type { Log } from "../lib/log.ts";

/** What is known of the host at one moment. */
export interface HostReadings {
  readonly sample: HostSample;
  /** What each processor has done since the host started. */
  readonly cores: KernelCounters["cores"];
}

export interface HostMetricsOptions {
  /** Where the samples are kept; absolute. */
  dir: string;
  /** Seconds from one sample to the next. */
  intervalSecs: number;
  clock: Clock;
  log: Pick<Log, "warn">;
}

/** Shares and rates need some time to be of, and who asks first is not to wait for long. */
const firstAfterMs = 1_000;
/** A host that cannot be read in this time is not waited for. */
const patienceMs = 5_000;
const maxBytes = { day: 24 * 1024 * 1024, month: 12 * 1024 * 1024 };

export class HostMetrics implements AsyncDisposable {
  readonly #options: HostMetricsOptions;
  readonly #kernel = new KernelReader();
  readonly #ring: SampleRing<HostSample>;
  /** Resolves with the next sample. */
  #next = Promise.withResolvers<undefined>();
  #before: HostReading | undefined;
  #newest: HostSample | undefined;
  #timer: Disposable | undefined;
  #work: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: HostMetricsOptions) {
    this.#options = options;
    this.#ring = new SampleRing({ ...options, subject: "the host", maxBytes, summarize });
  }

  start(): void {
    this.#work = this.#begin();
  }

  /**
   * The newest sample; the first one, where that is to come, as soon as it is taken.
   * @throws SvcError `not_ready` when it does not come in 5 s; the signal's reason
   */
  async newest(signal: AbortSignal): Promise<HostSample> {
    if (this.#newest === undefined) {
      const over = Promise.withResolvers<undefined>();
      using _timer = this.#options.clock.setTimer(patienceMs, () => over.resolve(undefined));
      await unlessAborted(Promise.race([this.#next.promise, over.promise]), signal);
    }
    if (this.#newest !== undefined) return this.#newest;
    const why = "the host's first sample is not taken yet; ask again in a moment";
    throw new SvcError("not_ready", why);
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

  async history(question: HistoryQuestion, asker: HistoryAsker): Promise<History<HostSample>> {
    return this.#ring.history(question, asker);
  }

  /** The newest sample, and what each processor has done since the host started; undefined until there is one. */
  readings(): HostReadings | undefined {
    const [sample, cores] = [this.#newest, this.#before?.counters.cores];
    return sample && cores && { sample, cores };
  }

  async #begin(): Promise<void> {
    await this.#ring.attempt("take", async () => {
      this.#before = await this.#read();
    });
    await this.#ring.open();
    this.#plan(firstAfterMs);
  }

  #plan(delayMs: number): void {
    if (this.#isStopped) return;
    this.#timer = this.#options.clock.setTimer(delayMs, () => {
      this.#work = this.#ring
        .attempt("take", () => this.#sample())
        .then(() => this.#plan(this.#options.intervalSecs * 1000));
    });
  }

  async #sample(): Promise<void> {
    const reading = await this.#read();
    const sample = hostSample(reading, this.#before ?? reading);
    this.#before = reading;
    this.#newest = sample;
    this.#next.resolve(undefined);
    this.#next = Promise.withResolvers();
    await this.#ring.add(sample);
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

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopped = true;
    this.#timer?.[Symbol.dispose]();
    await this.#work;
    await this.#ring.save();
  }
}
