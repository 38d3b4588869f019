/** Alerts, which send notifications with the actions of jobs. */
import { readAlertFacts } from "../../observability/alerts/alert-rules.ts";
import { AlertStore } from "../../observability/alerts/alert-store.ts";
import { Alerts } from "../../observability/alerts/alerts.ts";
import { createNotifier } from "../../observability/alerts/notifier.ts";
import type { InstalledApps } from "./apps.ts";
import type { Observability } from "./observability.ts";
import type { Platform } from "./platform.ts";
import type { Scheduling } from "./scheduling.ts";

export function createAlerts(
  { config, selfUid, clock, now, log, store }: Platform,
  { counters }: InstalledApps,
  { events, hostMetrics }: Observability,
  { scheduler }: Scheduling,
  resources: AsyncDisposableStack,
): Alerts {
  return resources.use(
    new Alerts({
      rules: config.alerts,
      store: new AlertStore(store, log),
      facts: () => readAlertFacts({ counters, hostMetrics, now }),
      notify: createNotifier(scheduler.plainActions, selfUid),
      onChange: events.onAlert,
      intervalMs: config.metrics.intervalSecs * 1000,
      ...{ clock, log },
    }),
  );
}
