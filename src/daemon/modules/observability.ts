/** The event log, and samples of the host and of apps over time. */
import { join } from "node:path";
import { AppHistory } from "../../apps/records/app-history.ts";
import { HostMetrics } from "../../host/metrics/host-metrics.ts";
import { NodeEvents } from "../node-events.ts";
import type { InstalledApps } from "./apps.ts";
import type { Platform } from "./platform.ts";
import type { Runtimes } from "./runtimes.ts";

export type Observability = ReturnType<typeof createObservability>;

export function createObservability(
  { config, clock, now, log, metrics }: Platform,
  { containers }: Runtimes,
  { changes, finder, reports }: InstalledApps,
  resources: AsyncDisposableStack,
) {
  const events = resources.use(
    new NodeEvents({
      ...{ changes, finder, now },
      engine: containers.state,
      onError: (error) => log.error({ err: error }, "failed to publish an event"),
    }),
  );
  const dir = join(config.store.dir, "metrics");
  const hostMetrics = resources.use(
    new HostMetrics({ dir, intervalSecs: config.metrics.intervalSecs, clock, log }),
  );
  const appHistory = resources.use(
    new AppHistory({
      ...{ dir, clock, log },
      intervalSecs: config.metrics.appIntervalSecs,
      usages: (signal) => reports.usages(signal),
    }),
  );
  metrics.watch({ host: () => hostMetrics.readings(), appUsages: () => appHistory.newest() });
  return { events, hostMetrics, appHistory };
}
