/** Samples the host periodically and stores the samples: one day in full, one month with one sample per five minutes. */
import { readdir } from "node:fs/promises";
import { SvcError } from "../../errors.ts";
import type { Clock } from "../../lib/clock.ts";
import { unlessAborted } from "../../lib/abort.ts";
import { readFilesystems } from "./filesystems.ts";
import { hostSample, summarize, type HostReading, type HostSample } from "./host-sample.ts";
import { KernelReader, type KernelCounters } from "./kernel-counters.ts";
import {
  SampleRing,
  type History,
  type HistoryCaller,
  type HistoryQuestion,
} from "../../lib/samples/sample-ring.ts";
import type { Log } from "../../lib/log.ts";

/** The state of the host at one moment. */
export interface HostReadings {
  readonly sample: HostSample;
  /** CPU time since the host started, by CPU. */
  readonly cores: KernelCounters["cores"];
}

export interface HostMetricsOptions {
  /** Directory of the samples; absolute. */
  dir: string;
  /** Seconds between two samples. */
  intervalSecs: number;
  clock: Clock;
  log: Pick<Log, "warn">;
}

/** Delay between the first two samples: rates need some time, and the first client should not wait long. */
const firstAfterMs = 1_000;
const maxBytes = { day: 24 * 1024 * 1024, month: 12 * 1024 * 1024 };

export class HostMetrics implements AsyncDisposable {
  readonly #options: HostMetricsOptions;
  readonly #kernel = new KernelReader();
  readonly #ring: SampleRing<HostSample>;
  /** Resolves to the next sample. */
  #next = Promise.withResolvers<undefined>();
  #previous: HostReading | undefined;
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

  /** @throws SvcError `not_ready` until the first sample exists */
  newest(): HostSample {
    if (this.#newest !== undefined) return this.#newest;
    const why =
      "system metrics are not available yet: the daemon takes its first sample a second after it starts";
    throw new SvcError("not_ready", `${why}; try again`);
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

  async history(question: HistoryQuestion, asker: HistoryCaller): Promise<History<HostSample>> {
    return this.#ring.history(question, asker);
  }

  /** The newest sample, and the CPU time since the host started; undefined until the first sample. */
  readings(): HostReadings | undefined {
    const [sample, cores] = [this.#newest, this.#previous?.counters.cores];
    return sample && cores && { sample, cores };
  }

  async #begin(): Promise<void> {
    await this.#ring.attempt("take", async () => {
      this.#previous = await this.#read();
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
    const sample = hostSample(reading, this.#previous ?? reading);
    this.#previous = reading;
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
