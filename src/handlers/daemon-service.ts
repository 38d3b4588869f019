/** DaemonService: what the daemon is and what it can do. */
import { hostname } from "node:os";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import type { Apps } from "../apps/apps.ts";
import type { DaemonMetrics } from "../metrics/daemon-metrics.ts";
import { expositionContentType } from "../metrics/exposition.ts";
import { userOf } from "../rpc/user-context.ts";

export interface DaemonFacts {
  version: string;
  mode: "system" | "user";
  startedAtMs: number;
  /** Known once every service is bound. */
  capabilities: () => readonly string[];
}

export function createDaemonService(
  apps: Apps,
  facts: DaemonFacts,
  metrics: DaemonMetrics,
): ServiceImpl<typeof DaemonService> {
  return {
    getStatus: async (_request, context) => {
      const { uid, user, root } = userOf(context);
      return {
        version: facts.version,
        capabilities: [...facts.capabilities()],
        apps: await apps.counters(userOf(context)),
        mode: facts.mode,
        hostname: hostname(),
        startedAt: timestampFromMs(facts.startedAtMs),
        caller: { uid, user, root },
      };
    },

    getDaemonMetrics: async () => ({
      contentType: expositionContentType,
      data: Buffer.from(await metrics.write()),
    }),
  };
}
