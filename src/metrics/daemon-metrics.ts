/** Everything that the daemon counts and measures of itself, as one page for Prometheus. */
import type { HostReadings } from "../host/host-metrics.ts";
import type { RuntimeUsage } from "../runtimes/runtime.ts";
import { writeApps } from "./app-series.ts";
import { CallMetrics, type EndedCall } from "./call-metrics.ts";
import { Histogram, writeFamily, writeHistograms } from "./exposition.ts";
import { writeHost } from "./host-series.ts";
import { ProcessMetrics } from "./process-metrics.ts";

/** What others know when they are asked. */
export interface MetricSources {
  readonly version: string;
  /** Calls that have not ended. */
  readonly callsInFlight: () => number;
  readonly appsByState: () => Promise<ReadonlyMap<string, number>>;
  /** Audit records that could not be written. */
  readonly auditRecordsLost: () => number;
  /** Undefined until the host was looked at. */
  readonly host: () => HostReadings | undefined;
  /** Of every app, by id. */
  readonly appStates: () => Promise<ReadonlyMap<string, string>>;
  /** What apps used when they were looked at last, by id. */
  readonly appUsages: () => ReadonlyMap<string, RuntimeUsage>;
}

/** Upper bounds in seconds: from a fast disk's fsync to a write's deadline. */
const writeBounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10];

export class DaemonMetrics implements Disposable {
  readonly #sources: MetricSources;
  readonly #calls = new CallMetrics();
  readonly #storeWrites = new Histogram(writeBounds);
  #storeWriteFailures = 0;
  readonly #process = new ProcessMetrics();

  constructor(sources: MetricSources) {
    this.#sources = sources;
  }

  observeCall(call: EndedCall): void {
    this.#calls.observe(call);
  }

  /** A write to the store, from its request to its answer. */
  observeStoreWrite(durationMs: number, isKept: boolean): void {
    this.#storeWrites.observe(durationMs / 1000);
    if (!isKept) this.#storeWriteFailures++;
  }

  /** The page in the text format of Prometheus. */
  async write(): Promise<string> {
    const { version, callsInFlight, appsByState, auditRecordsLost, host, appStates, appUsages } =
      this.#sources;
    const [apps, states, process] = await Promise.all([appsByState(), appStates(), this.#process.write()]);
    const readings = host();
    return [
      readings === undefined ? "" : writeHost(readings),
      writeApps(appUsages(), states),
      writeFamily("svc_info", "gauge", "The daemon and its version.", [{ labels: { version }, value: 1 }]),
      this.#calls.write(),
      writeFamily("svc_calls_in_flight", "gauge", "Calls that have not ended, this one included.", [
        { value: callsInFlight() },
      ]),
      writeFamily(
        "svc_apps",
        "gauge",
        "Apps by state.",
        Array.from(apps, ([state, value]) => ({ labels: { state }, value })),
      ),
      writeHistograms(
        "svc_store_write_duration_seconds",
        "How long writes to the store took, from their request to their answer.",
        [{ histogram: this.#storeWrites }],
      ),
      writeFamily("svc_store_write_failures_total", "counter", "Writes of which the store kept nothing.", [
        { value: this.#storeWriteFailures },
      ]),
      writeFamily("svc_audit_records_lost_total", "counter", "Audit records that could not be written.", [
        { value: auditRecordsLost() },
      ]),
      process,
    ].join("");
  }

  [Symbol.dispose](): void {
    this.#process[Symbol.dispose]();
  }
}
