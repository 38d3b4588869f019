/** Resource usage of the daemon's process, under the standard names of Prometheus client libraries. */
import { readdir } from "node:fs/promises";
import { monitorEventLoopDelay, type EventLoopUtilization } from "node:perf_hooks";
import { writeFamily } from "./exposition.ts";

const resolutionMs = 20;
/** After this time without a request, sampling stops. */
const idleMs = 5 * 60_000;

/**
 * Sampling the delay of the event loop wakes the process 50 times a second, so it runs only while a client asks. After the first
 * request, each response covers the time since the previous one.
 */
export class ProcessMetrics implements Disposable {
  #delay: ReturnType<typeof monitorEventLoopDelay> | undefined;
  #utilization: EventLoopUtilization = performance.eventLoopUtilization();
  #idleTimer: NodeJS.Timeout | undefined;

  async write(): Promise<string> {
    const { user, system } = process.cpuUsage();
    const memory = process.memoryUsage();
    const descriptors = await readdir("/proc/self/fd").catch(() => undefined);
    return [
      writeFamily("process_cpu_user_seconds_total", "counter", "CPU time in user mode.", [
        { value: user / 1e6 },
      ]),
      writeFamily("process_cpu_system_seconds_total", "counter", "CPU time in the kernel.", [
        { value: system / 1e6 },
      ]),
      writeFamily("process_start_time_seconds", "gauge", "When the process started, in unix seconds.", [
        { value: Math.round(performance.timeOrigin) / 1000 },
      ]),
      writeFamily("process_resident_memory_bytes", "gauge", "Resident memory.", [{ value: memory.rss }]),
      writeFamily("nodejs_heap_size_total_bytes", "gauge", "Size of the JavaScript heap.", [
        { value: memory.heapTotal },
      ]),
      writeFamily("nodejs_heap_size_used_bytes", "gauge", "What of the JavaScript heap is used.", [
        { value: memory.heapUsed },
      ]),
      writeFamily("nodejs_external_memory_bytes", "gauge", "Memory outside of the heap that it holds.", [
        { value: memory.external },
      ]),
      writeFamily(
        "process_open_fds",
        "gauge",
        "Open file descriptors.",
        // Without the descriptor of this listing.
        descriptors === undefined ? [] : [{ value: descriptors.length - 1 }],
      ),
      this.#writeEventLoop(),
    ].join("");
  }

  #writeEventLoop(): string {
    const since = this.#utilization;
    this.#utilization = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(this.#utilization, since);
    const delay = this.#delay;
    const quantiles = delay === undefined || delay.count === 0 ? [] : [50, 90, 99];
    const text =
      writeFamily(
        "svc_event_loop_utilization_ratio",
        "gauge",
        "Share of the time since the previous scrape in which the event loop was busy.",
        [{ value: utilization }],
      ) +
      writeFamily(
        "svc_event_loop_delay_seconds",
        "gauge",
        "How late timers fired since the previous scrape; absent in the first one.",
        quantiles.map((percent) => ({
          labels: { quantile: percent / 100 },
          value: seconds(delay?.percentile(percent) ?? 0),
        })),
      ) +
      writeFamily(
        "svc_event_loop_delay_max_seconds",
        "gauge",
        "The longest delay since the previous scrape; absent in the first one.",
        quantiles.length === 0 ? [] : [{ value: seconds(delay?.max ?? 0) }],
      );
    this.#watch();
    return text;
  }

  #watch(): void {
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this[Symbol.dispose](), idleMs).unref();
    if (this.#delay !== undefined) {
      this.#delay.reset();
      return;
    }
    this.#delay = monitorEventLoopDelay({ resolution: resolutionMs });
    this.#delay.enable();
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#idleTimer);
    this.#delay?.disable();
    this.#delay = undefined;
  }
}

/** The histogram counts the whole interval between two samples, in nanoseconds. */
function seconds(intervalNs: number): number {
  return Math.max(intervalNs / 1e6 - resolutionMs, 0) / 1e3;
}
