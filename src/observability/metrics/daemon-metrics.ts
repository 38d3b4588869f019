/** The daemon's own metrics, as one page for Prometheus. */
import type { HostReadings } from "../../host/metrics/host-metrics.ts";
import type { RuntimeUsage } from "../../runtimes/capabilities.ts";
import { writeApps } from "./app-series.ts";
import { CallMetrics, type EndedCall } from "./call-metrics.ts";
import { Histogram, writeFamily, writeHistograms } from "./exposition.ts";
import { writeHost } from "./host-series.ts";
import { ProcessMetrics } from "./process-metrics.ts";

export interface DaemonMetricsOptions {
  readonly version: string;
  readonly listeners: () => readonly {
    readonly kind: string;
    readonly address: string;
    readonly state: string;
  }[];
}

/** Gauges of other parts, read for each page. */
export interface MetricSources {
  /** Calls that have not ended. */
  readonly callsInFlight: () => number;
  readonly appsByState: () => Promise<ReadonlyMap<string, number>>;
  /** Audit records that could not be written. */
  readonly auditRecordsLost: () => number;
  /** Undefined until the first sample of the host. */
  readonly host: () => HostReadings | undefined;
  /** States of all apps, by ID. */
  readonly appStates: () => Promise<ReadonlyMap<string, string>>;
  /** The last measured usage of apps, by ID. */
  readonly appUsages: () => ReadonlyMap<string, RuntimeUsage>;
}

/** Sources without values, until the parts that have the gauges are created. */
const nothing: MetricSources = {
  callsInFlight: () => 0,
  appsByState: () => Promise.resolve(new Map()),
  auditRecordsLost: () => 0,
  host: () => undefined,
  appStates: () => Promise.resolve(new Map()),
  appUsages: () => new Map(),
};

/** Upper bounds in seconds: from a fast disk's fsync to a write's deadline. */
const writeBounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10];

export class DaemonMetrics implements Disposable {
  readonly #options: DaemonMetricsOptions;
  #sources = nothing;
  readonly #calls = new CallMetrics();
  readonly #storeWrites = new Histogram(writeBounds);
  #storeWriteFailures = 0;
  readonly #process = new ProcessMetrics();

  constructor(options: DaemonMetricsOptions) {
    this.#options = options;
  }

  /** Adds gauges of a part to the page. */
  watch(sources: Partial<MetricSources>): void {
    this.#sources = { ...this.#sources, ...sources };
  }

  observeCall(call: EndedCall): void {
    this.#calls.observe(call);
  }

  /** Records a write to the store, from request to result. */
  observeStoreWrite(durationMs: number, isStored: boolean): void {
    this.#storeWrites.observe(durationMs / 1000);
    if (!isStored) this.#storeWriteFailures++;
  }

  /** The page in the text format of Prometheus. */
  async write(): Promise<string> {
    const { version, listeners } = this.#options;
    const { callsInFlight, appsByState, auditRecordsLost, host, appStates, appUsages } = this.#sources;
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
      writeFamily("svc_store_write_failures_total", "counter", "Writes to the store that failed.", [
        { value: this.#storeWriteFailures },
      ]),
      writeFamily("svc_audit_records_lost_total", "counter", "Audit records that could not be written.", [
        { value: auditRecordsLost() },
      ]),
      writeFamily(
        "svc_listener_up",
        "gauge",
        "Whether the daemon listens on the address.",
        listeners().map(({ kind, address, state }) => ({
          labels: { kind, address },
          value: state === "LISTENING" ? 1 : 0,
        })),
      ),
      process,
    ].join("");
  }

  [Symbol.dispose](): void {
    this.#process[Symbol.dispose]();
  }
}
