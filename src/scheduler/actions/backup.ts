/** `backup`: a failed run, until this version of svc makes backups. */
import { SvcError } from "../../errors.ts";
import type { Action } from "./action.ts";

export function createBackupAction(): Action {
  return {
    run() {
      const why = "this version of svc makes no backups yet";
      return Promise.reject(new SvcError("unimplemented", "not_implemented", why));
    },
  };
}
