/** Records of changing calls. */
import type { Message } from "@bufbuild/protobuf";
import type { ErrorCode } from "../../errors.ts";
import type { UserContext } from "./user-context.ts";

/** One changing call, for the log and the audit log. */
export interface AuditRecord {
  readonly requestId: string;
  /** Full name, such as `svc.v1.AppService/StartApp`. */
  readonly method: string;
  readonly protocolName: string;
  readonly user: UserContext;
  /** The request's target, such as an app ID; empty for none. At most 256 characters. */
  readonly target: string;
  /** `ok` or the code of the error. */
  readonly result: "ok" | ErrorCode;
  /** The reason of the error. */
  readonly reason?: string;
  /** Duration in milliseconds, until the handler's end even if the client has left. */
  readonly durationMs: number;
  /** True: the call succeeded and had no effect. */
  readonly changedNothing?: boolean;
}

/** Fields that identify the target of a request, most specific first. */
const naming = [
  "appId",
  "id",
  "spec",
  "container",
  "composeProject",
  "path",
  "paths",
  "pid",
  "name",
  "managedBy",
  "target",
] as const;

const maxTargetLength = 256;

/**
 * Userinfo of a URL, up to the last `@` of the authority: a git URL may contain a password, which may contain
 * `@`.
 */
const userinfo = /\/\/[^/\s]*@/gu;

/** The query of a URL, where some hosts expect tokens. */
const urlQuery = /(\/\/[^?\s]*)\?\S*/gu;

/** The target of a request. */
export function auditTarget(request: Message | undefined): string {
  if (request === undefined) return "";
  const fields = request as unknown as Readonly<Record<string, unknown>>;
  for (const name of naming) {
    const value = fields[name];
    const text = Array.isArray(value) ? value.slice(0, 16).join(" ") : value;
    if (typeof text === "number") return String(text);
    if (typeof text === "string" && text !== "") {
      return text.replace(userinfo, "//***@").replace(urlQuery, "$1?***").slice(0, maxTargetLength);
    }
  }
  return "";
}

/** A record as fields of a log line. */
export function auditLine(record: AuditRecord): Record<string, unknown> {
  const { user, ...rest } = record;
  return {
    ...rest,
    uid: user.uid,
    kind: user.kind,
    ...(user.ownerUid === user.uid ? {} : { ownerUid: user.ownerUid }),
    ...(user.tokenDigest === undefined ? {} : { tokenDigest: user.tokenDigest }),
  };
}
