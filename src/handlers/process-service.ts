/** ProcessService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { ProcessService } from "../../gen/svc/v1/process_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createProcessService(): ServiceImpl<typeof ProcessService> {
  return {
    listProcesses: unimplemented,
    signalProcess: unimplemented,
  };
}
