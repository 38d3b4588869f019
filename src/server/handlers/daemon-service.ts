/** DaemonService: status, capabilities and configuration of the daemon. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import type { Alerts } from "../../observability/alerts/alerts.ts";
import type { AppCounters } from "../../apps/records/app-counters.ts";
import type { AppFinder } from "../../apps/records/app-finder.ts";
import type { DaemonMetrics } from "../../observability/metrics/daemon-metrics.ts";
import { expositionContentType } from "../../observability/metrics/exposition.ts";
import { userOf } from "../rpc/user-context.ts";
import type { DaemonFacts, StatusResponses } from "./status-responses.ts";

/** Reloads the configuration file; keys are named as in the file. */
export interface ReloadsConfig {
  reload(): Promise<{ readonly applied: string[]; readonly needsRestart: string[] }>;
}

export function createDaemonService(
  finder: Pick<AppFinder, "visibleIds">,
  counters: Pick<AppCounters, "of">,
  userName: DaemonFacts["userName"],
  answers: StatusResponses,
  metrics: DaemonMetrics,
  alerts: Alerts,
  configReload: ReloadsConfig,
): ServiceImpl<typeof DaemonService> {
  return {
    getStatus: async (_request, context) => {
      const user = userOf(context);
      return answers.of(
        user,
        await userName(user.uid),
        await counters.of(user),
        alerts.firing(user.root ? undefined : finder.visibleIds(user)),
      );
    },

    getDaemonMetrics: async () => ({
      contentType: expositionContentType,
      data: Buffer.from(await metrics.write()),
    }),

    reloadConfig: () => configReload.reload(),
  };
}
