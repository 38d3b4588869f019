/** Counts calls and their durations. Labels are methods, codes and protocols: closed sets, so the number of series is bounded. */
import { Histogram, writeFamily, writeHistograms, type Sample } from "./exposition.ts";

/** A call that has ended. */
export interface EndedCall {
  /** Full name, such as `svc.v1.AppService/StartApp`; `unknown` for a request that named no method. */
  readonly method: string;
  readonly protocolName: string;
  /** `ok` or the code of the error. */
  readonly code: string;
  /** Absent if the request was answered before it became a call. */
  readonly durationMs?: number;
}

/** Upper bounds in seconds, from a cached response to an install. Streams last as long as the client follows. */
const durationBounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10, 60];

interface MethodMetrics {
  readonly countByCode: Map<string, number>;
  readonly durationByProtocol: Map<string, Histogram>;
}

export class CallMetrics {
  readonly #methods = new Map<string, MethodMetrics>();

  observe({ method, protocolName, code, durationMs }: EndedCall): void {
    let metrics = this.#methods.get(method);
    if (metrics === undefined) {
      metrics = { countByCode: new Map(), durationByProtocol: new Map() };
      this.#methods.set(method, metrics);
    }
    const { countByCode, durationByProtocol } = metrics;
    countByCode.set(code, (countByCode.get(code) ?? 0) + 1);
    if (durationMs === undefined) return;
    let histogram = durationByProtocol.get(protocolName);
    if (histogram === undefined) {
      histogram = new Histogram(durationBounds);
      durationByProtocol.set(protocolName, histogram);
    }
    histogram.observe(durationMs / 1000);
  }

  write(): string {
    const counts: Sample[] = [];
    const durations: { labels: Record<string, string>; histogram: Histogram }[] = [];
    for (const [method, { countByCode, durationByProtocol }] of this.#methods) {
      for (const [code, value] of countByCode) counts.push({ labels: { method, code }, value });
      for (const [protocol, histogram] of durationByProtocol) {
        durations.push({ labels: { method, protocol }, histogram });
      }
    }
    return (
      writeFamily(
        "svc_calls_total",
        "counter",
        "Requests that were answered and calls that have ended, by method and code.",
        counts,
      ) +
      writeHistograms(
        "svc_call_duration_seconds",
        "How long calls took, by method and protocol; a stream takes as long as it is open. Without what was refused before it was a call.",
        durations,
      )
    );
  }
}
