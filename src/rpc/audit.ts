/** What is noted about a changing call. */
import type { Message } from "@bufbuild/protobuf";
import type { ErrorCode } from "../errors.ts";
import type { UserContext } from "./user-context.ts";

/** One changing call, for the log and the audit trail. */
export interface AuditRecord {
  readonly requestId: string;
  /** Full name, such as `svc.v1.AppService/StartApp`. */
  readonly method: string;
  readonly protocolName: string;
  readonly user: UserContext;
  /** What the request names, such as an app's id; empty when nothing does. At most 256 characters. */
  readonly target: string;
  /** `ok` or the code of the error. */
  readonly result: "ok" | ErrorCode;
  /** The reason of the error. */
  readonly reason?: string;
  /** Milliseconds that the call took; a handler that goes on after its client left counts to its end. */
  readonly durationMs: number;
}

/** Fields that say what a request is about, most telling first. */
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

/** Userinfo of a URL: a git URL may carry a password. */
const userinfo = /\/\/[^/@\s]*@/gu;

/** The query of a URL: some hosts take their tokens there. */
const urlQuery = /(\/\/[^?\s]*)\?\S*/gu;

/** What a request names. */
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

/** A record as a log line shows it. */
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
