/** DaemonService: what the daemon is and what it can do. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import type { Alerts } from "../alerts/alerts.ts";
import type { Apps } from "../apps/apps.ts";
import type { DaemonMetrics } from "../metrics/daemon-metrics.ts";
import { expositionContentType } from "../metrics/exposition.ts";
import type { ConfigReload } from "../daemon/config-reload.ts";
import { userOf } from "../rpc/user-context.ts";
import { StatusAnswers, type DaemonFacts } from "./status-answers.ts";

export function createDaemonService(
  apps: Apps,
  facts: DaemonFacts,
  metrics: DaemonMetrics,
  alerts: Alerts,
  configReload: ConfigReload,
): ServiceImpl<typeof DaemonService> {
  const answers = new StatusAnswers(facts);
  return {
    getStatus: async (_request, context) => {
      const user = userOf(context);
      return answers.of(
        user,
        await facts.userName(user.uid),
        await apps.counters(user),
        alerts.firing(user.root ? undefined : apps.visibleIds(user)),
      );
    },

    getDaemonMetrics: async () => ({
      contentType: expositionContentType,
      data: Buffer.from(await metrics.write()),
    }),

    reloadConfig: () => configReload.reload(),
  };
}
