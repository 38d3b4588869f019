/** SystemService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { SystemService } from "../../gen/svc/v1/system_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createSystemService(): ServiceImpl<typeof SystemService> {
  return {
    rebootSystem: unimplemented,
  };
}
