/** How the host, or something on it, is doing now. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { SystemMetrics } from "../../gen/svc/v1/monitor_pb.ts";
import { isUnauthenticated, type Api } from "./api.ts";

/** A sample is taken every few seconds, and a second stream would take a connection from the browser's other tabs. */
const sampleMs = 5_000;

/** The newest sample, for as long as somebody looks; undefined until there is one. */
export function useHostSample(api: Api): SystemMetrics | undefined {
  return useSample((signal) => api.monitor.getSystemMetrics({}, { signal }), [api]);
}

/** What `read` says, again and again, for as long as somebody looks. @param deps what it depends on */
export function useSample<T>(
  read: (signal: AbortSignal) => Promise<T>,
  deps: readonly unknown[],
): T | undefined {
  const sample = useSignal<T | undefined>(undefined);
  useEffect(() => {
    const over = new AbortController();
    let isAsked = false;
    const take = async (): Promise<void> => {
      if (document.hidden || isAsked || over.signal.aborted) return;
      isAsked = true;
      try {
        sample.value = await read(over.signal);
      } catch (error) {
        // Whether the daemon answers is said elsewhere.
        if (isUnauthenticated(error)) over.abort();
      } finally {
        isAsked = false;
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
