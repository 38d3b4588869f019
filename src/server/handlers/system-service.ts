/** SystemService: one domain call per method. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { SystemService } from "../../../gen/svc/v1/system_pb.ts";
import { rebootDelaySecs, type HostReboot } from "../../host/reboot.ts";

export function createSystemService(reboot: HostReboot): ServiceImpl<typeof SystemService> {
  return {
    rebootSystem: () => {
      reboot.request();
      return { delaySecs: rebootDelaySecs };
    },
  };
}
