import type { AuditedCall } from "../../../../src/observability/audit/audit-record.ts";

/** A call as the pipeline passes it. */
export function auditedCall(n: number, changes: Partial<AuditedCall> = {}): AuditedCall {
  return {
    requestId: `r-${n}`,
    method: "svc.v1.AppService/StartApp",
    protocolName: "rest",
    user: { uid: 0, kind: "peer", ownerUid: 0, peerUid: 0 },
    target: `app-${n}`,
    result: "ok",
    durationMs: n,
    ...changes,
  };
}
