/** How the host is doing now. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { SystemMetrics } from "../../gen/svc/v1/monitor_pb.ts";
import { isUnauthenticated, type Api } from "./api.ts";

/** A sample is taken every few seconds, and a second stream would take a connection from the browser's other tabs. */
const sampleMs = 5_000;

/** The newest sample, for as long as somebody looks; undefined until there is one. */
export function useHostSample(api: Api): SystemMetrics | undefined {
  const sample = useSignal<SystemMetrics | undefined>(undefined);
  useEffect(() => {
    const over = new AbortController();
    const read = async (): Promise<void> => {
      if (document.hidden) return;
      try {
        sample.value = await api.monitor.getSystemMetrics({}, { signal: over.signal });
      } catch (error) {
        // Whether the daemon answers is said elsewhere.
        if (isUnauthenticated(error)) over.abort();
      }
    };
    void read();
    const timer = setInterval(() => void read(), sampleMs);
    return () => {
      clearInterval(timer);
      over.abort();
    };
  }, [api]);
  return sample.value;
}
