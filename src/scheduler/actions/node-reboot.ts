/** `node_reboot`: reboots the host shortly after the run was recorded. */
import { SvcError } from "../../errors.ts";
import { rebootDelaySecs, type HostReboot } from "../../host/reboot.ts";
import type { Action } from "./action.ts";

export function createNodeRebootAction(reboot: HostReboot): Action {
  return (_job, { isRoot, write }) => {
    if (!isRoot) {
      const why = "only root's jobs may reboot the host";
      return Promise.reject(new SvcError("root_required", why));
    }
    write(`the host reboots in ${rebootDelaySecs} s\n`);
    return Promise.resolve({ afterwards: (signal) => reboot.perform(signal) });
  };
}
