/**
 * Returns freed native memory to the kernel. The C library retains the pages of freed buffers of sockets, zlib and
 * HTTP/2: after a flood of requests more than 70 MiB of a daemon that needs 165.
 */
import { loadMallocTrim } from "../sys/malloc-trim.mjs";
import { Ticker } from "../lib/clock.ts";

export interface MemoryReleaseOptions {
  readonly intervalMs?: number;
  /** Resident memory of the process. */
  readonly residentBytes: () => number;
  /** The share of time since the previous call, 0 to 1, in which the event loop was busy. */
  readonly load: () => number;
  /** Must not throw. */
  readonly release: () => Promise<unknown>;
}

const defaultIntervalMs = 5_000;
/** Higher load prevents a release: it takes about 0.2 ms per MiB, during which allocations wait. */
const mostLoad = 0.1;
/** Minimum growth since the last release. */
const worthBytes = 4 * 1024 * 1024;

export class MemoryRelease implements AsyncDisposable {
  readonly #options: MemoryReleaseOptions;
  readonly #ticker: Ticker;
  #leastBytes = 0;

  constructor(options: MemoryReleaseOptions) {
    this.#options = options;
    this.#ticker = new Ticker(options.intervalMs ?? defaultIntervalMs, () => this.releaseIfIdle());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#ticker[Symbol.asyncDispose]();
  }

  /** Releases memory if the event loop is idle and memory has grown. */
  async releaseIfIdle(): Promise<void> {
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

/** For this process; undefined if the platform cannot release memory. */
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
