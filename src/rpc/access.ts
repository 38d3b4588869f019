/** Who may call what (D2, S 5): decided from the contract's policy alone, for every transport. */
import type { DescMethod } from "@bufbuild/protobuf";
import type { MethodPolicy } from "../../gen/svc/v1/methods.ts";
import { SvcError } from "../errors.ts";
import type { UserContext } from "./user-context.ts";

/** Full name of a method, as policies, logs and audit records spell it. */
export function methodName(method: DescMethod): string {
  return `${method.parent.typeName}/${method.name}`;
}

/** @throws SvcError `permission_denied` with reason `token_denied` or `root_required` */
export function checkAccess(method: DescMethod, access: MethodPolicy["access"], user: UserContext): void {
  if (access === "USER") return;
  if (access === "PRIMARY" && user.kind === "access") {
    const message = `${method.name} takes the primary token; an access token may not call it`;
    throw new SvcError("token_denied", message, { payload: {} });
  }
  if (!user.root) {
    const message = `${method.name} is for root: call it with sudo or with a token`;
    throw new SvcError("root_required", message);
  }
}
