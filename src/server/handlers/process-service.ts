/** ProcessService: one domain call per method. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { ProcessService } from "../../../gen/svc/v1/process_pb.ts";
import type { ListProcessesRequestSort, SignalProcessRequestSignal } from "../../../gen/svc/v1/values.ts";
import type { HostProcesses } from "../../host/processes/host-processes.ts";
import type { ProcessSignals } from "../../host/processes/process-signals.ts";
import { userOf } from "../rpc/user-context.ts";

const mostProcesses = 10_000;

export function createProcessService(
  processes: HostProcesses,
  signals: ProcessSignals,
): ServiceImpl<typeof ProcessService> {
  return {
    listProcesses: async ({ kernelThreads, sort = "pid", limit = mostProcesses, offset }, context) =>
      processes.list(
        { kernelThreads, sort: sort as ListProcessesRequestSort, limit, offset },
        userOf(context),
        context.signal,
      ),

    signalProcess: ({ pid, signal, expectedStartTicks }) => {
      signals.send({
        pid,
        signal: signal as SignalProcessRequestSignal,
        ...(expectedStartTicks !== undefined && { expectedStartTicks: Number(expectedStartTicks) }),
      });
      return { pid, signal };
    },
  };
}
