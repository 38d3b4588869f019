/** MonitorService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { MonitorService } from "../../gen/svc/v1/monitor_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createMonitorService(): ServiceImpl<typeof MonitorService> {
  return {
    getSystemMetrics: unimplemented,
    getMetricsHistory: unimplemented,
    listListeningPorts: unimplemented,
  };
}
