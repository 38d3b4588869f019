/**
 * Gives back to the kernel what native code has freed. Buffers of sockets, of zlib and of HTTP/2 are the C library's, and
 * it keeps their pages for next time: after a flood of requests 70 MiB and more of a daemon that needs 165.
 */
import { loadMallocTrim } from "../sys/malloc-trim.mjs";
import { Ticker } from "../lib/clock.ts";

export interface MemoryReleaseOptions {
  readonly intervalMs?: number;
  /** Resident memory of the process. */
  readonly residentBytes: () => number;
  /** The share of the time since it was last asked, 0 to 1, in which the event loop had work. */
  readonly load: () => number;
  /** Must not throw. */
  readonly release: () => Promise<unknown>;
}

const defaultIntervalMs = 5_000;
/** It takes about 0.2 ms for each MiB, in which nobody gets new memory: not while anybody waits for an answer. */
const mostLoad = 0.1;
/** Less than this above what the last release left is not worth another one. */
const worthBytes = 4 * 1024 * 1024;

export class MemoryRelease implements AsyncDisposable {
  readonly #options: MemoryReleaseOptions;
  readonly #ticker: Ticker;
  #leastBytes = 0;

  constructor(options: MemoryReleaseOptions) {
    this.#options = options;
    this.#ticker = new Ticker(options.intervalMs ?? defaultIntervalMs, () => this.look());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#ticker[Symbol.asyncDispose]();
  }

  /** Releases memory if the process is at rest and has grown. */
  async look(): Promise<void> {
    const { residentBytes, load, release } = this.#options;
    const isAtRest = load() <= mostLoad;
    const bytes = residentBytes();
    if (isAtRest && bytes >= this.#leastBytes + worthBytes) {
      await release();
      this.#leastBytes = residentBytes();
    } else {
      this.#leastBytes = Math.min(this.#leastBytes, bytes);
    }
  }
}

/** For this process; undefined where nothing can be released. */
export function createMemoryRelease(): MemoryRelease | undefined {
  const release = loadMallocTrim();
  if (release === undefined) return undefined;
  let since = performance.eventLoopUtilization();
  return new MemoryRelease({
    residentBytes: () => process.memoryUsage.rss(),
    load: () => {
      const now = performance.eventLoopUtilization();
      const { utilization } = performance.eventLoopUtilization(now, since);
      since = now;
      return utilization;
    },
    release,
  });
}
