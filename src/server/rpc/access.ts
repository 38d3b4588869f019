/** Access control by the contract's policy, the same for every transport. */
import type { DescMethod } from "@bufbuild/protobuf";
import { createContextKey } from "@connectrpc/connect";
import type { MethodPolicy } from "../../../gen/svc/v1/methods.ts";
import { SvcError } from "../../errors.ts";
import { restrictedMethodLabels } from "./restricted-methods.ts";
import type { UserContext } from "./user-context.ts";

/** The caller. The gate stores the admitted method in it, so that the call is not checked twice. */
export interface GatedCaller {
  readonly user: UserContext;
  readonly requestId: string;
  admittedTo?: DescMethod | undefined;
}

/** The caller of a call through Connect. */
export const gatedCallerKey = createContextKey<GatedCaller | undefined>(undefined, {
  description: "svc caller at the gate",
});

/** Full name of a method in policies, logs and audit records. */
export function methodName(method: DescMethod): string {
  return `${method.parent.typeName}/${method.name}`;
}

/** @throws SvcError `permission_denied` with reason `token_denied` or `root_required` */
export function checkAccess(method: DescMethod, access: MethodPolicy["access"], user: UserContext): void {
  const denial = tokenDenial(access, user);
  if (denial !== undefined)
    throw new SvcError("token_denied", `${labelOf(method)} ${denial}`, { payload: {} });
  if (access !== "ROOT" && access !== "PRIMARY") return;
  if (!user.root) {
    throw new SvcError("root_required", `${labelOf(method)} requires root: use sudo, or a token`);
  }
}

/** A description for people. Other rejections are mistakes of a client and name the method. */
function labelOf(method: DescMethod): string {
  const words: Readonly<Record<string, string>> = restrictedMethodLabels;
  return words[methodName(method)] ?? method.name;
}

/** Why the caller's kind of credential cannot call this method; undefined if it can. */
function tokenDenial(access: MethodPolicy["access"], { kind }: UserContext): string | undefined {
  if (access === "CODE")
    return kind === "code" ? undefined : "requires a session's sign-in code as bearer token";
  if (kind === "code") return "takes no code of a session; trade it for a token first: OpenSession";
  if (access === "PEER" && kind !== "peer" && kind !== "local")
    return "requires a connection to the socket, not a token";
  if (access === "PRIMARY" && kind === "access") return "requires the primary token, not an access token";
  if (access === "PRIMARY" && kind === "session") return "requires the primary token, not a session";
  return undefined;
}
