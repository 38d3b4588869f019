/** Current metrics of the host or of an object on it. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { SystemMetrics } from "../../gen/svc/v1/monitor_pb.ts";
import { isUnauthenticated, type Api } from "./api.ts";

/** Polled, because a second stream would take a connection from the browser's other tabs. */
const sampleMs = 5_000;

/** The newest sample, updated while the page is visible; undefined before the first one. */
export function useHostSample(api: Api): SystemMetrics | undefined {
  const sampled = useRef<Api | undefined>(undefined);
  const read = async (signal: AbortSignal): Promise<SystemMetrics> => {
    if (sampled.current === api) return api.monitor.getSystemMetrics({}, { signal });
    const sample = await firstSample(api, signal);
    sampled.current = api;
    return sample;
  };
  return useSample(read, [api]);
}

/**
 * Reads one sample from the stream, which waits for the first sample of a daemon that has just started. `GetSystemMetrics`
 * fails until then, and the browser logs each failed request as an error.
 */
async function firstSample(api: Api, signal: AbortSignal): Promise<SystemMetrics> {
  const done = new AbortController();
  const until = AbortSignal.any([signal, done.signal, AbortSignal.timeout(sampleMs)]);
  try {
    for await (const sample of api.monitor.streamSystemMetrics({}, { signal: until })) return sample;
    throw new Error("the stream of system metrics ended without a sample");
  } finally {
    done.abort();
  }
}

/** The result of `read`, updated while the page is visible. @param deps dependencies of `read` */
export function useSample<T>(
  read: (signal: AbortSignal) => Promise<T>,
  deps: readonly unknown[],
): T | undefined {
  const sample = useSignal<T | undefined>(undefined);
  useEffect(() => {
    const over = new AbortController();
    let isReading = false;
    const take = async (): Promise<void> => {
      if (document.hidden || isReading || over.signal.aborted) return;
      isReading = true;
      try {
        sample.value = await read(over.signal);
      } catch (error) {
        // Other parts of the page report an unresponsive daemon.
        if (isUnauthenticated(error)) over.abort();
      } finally {
        isReading = false;
      }
    };
    void take();
    const timer = setInterval(() => void take(), sampleMs);
    return () => {
      clearInterval(timer);
      over.abort();
    };
  }, [...deps]);
  return sample.value;
}
