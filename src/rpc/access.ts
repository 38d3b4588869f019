/** Who may call what (D2, S 5): decided from the contract's policy alone, for every transport. */
import type { DescMethod } from "@bufbuild/protobuf";
import type { MethodPolicy } from "../../gen/svc/v1/methods.ts";
import { SvcError } from "../errors.ts";
import { guardedWords } from "./guarded-words.ts";
import type { UserContext } from "./user-context.ts";

/** Full name of a method, as policies, logs and audit records spell it. */
export function methodName(method: DescMethod): string {
  return `${method.parent.typeName}/${method.name}`;
}

/** @throws SvcError `permission_denied` with reason `token_denied` or `root_required` */
export function checkAccess(method: DescMethod, access: MethodPolicy["access"], user: UserContext): void {
  const denial = tokenDenial(access, user);
  if (denial !== undefined)
    throw new SvcError("token_denied", `${wordsOf(method)} ${denial}`, { payload: {} });
  if (access !== "ROOT" && access !== "PRIMARY") return;
  if (!user.root) {
    throw new SvcError("root_required", `${wordsOf(method)} is for root: use sudo, or a token`);
  }
}

/** Only what is refused to somebody who is identified is put in a person's words: the rest is a client's mistake. */
function wordsOf(method: DescMethod): string {
  const words: Readonly<Record<string, string>> = guardedWords;
  return words[methodName(method)] ?? method.name;
}

/** Why what the caller presented is not for this method, whoever they are. */
function tokenDenial(access: MethodPolicy["access"], { kind }: UserContext): string | undefined {
  if (access === "CODE") return kind === "code" ? undefined : "takes the code of a session as bearer token";
  if (kind === "code") return "takes no code of a session; trade it for a token first: OpenSession";
  if (access === "PEER" && kind !== "peer" && kind !== "local")
    return "is for peers of the socket, not for tokens";
  if (access === "PRIMARY" && kind === "access") return "takes the primary token, not one that was issued";
  if (access === "PRIMARY" && kind === "session") return "takes the primary token, not a session";
  return undefined;
}
