/** AuditService: who changed what. */
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import type { AuditRecordSchema, AuditService } from "../../../gen/svc/v1/audit_pb.ts";
import { methodPolicies } from "../../../gen/svc/v1/methods.ts";
import type { AuditReader } from "../../observability/audit/audit-reader.ts";
import type { AuditRow } from "../../observability/audit/audit-record.ts";
import { recordsLostMethod } from "../../observability/audit/audit-trail.ts";
import { rejectedCallsMethod } from "../../observability/audit/ineffective-calls.ts";
import { invalidField } from "../../errors.ts";

const defaultLimit = 100;
const methodNames = [...Object.keys(methodPolicies), recordsLostMethod, rejectedCallsMethod];

export function createAuditService(audit: AuditReader): ServiceImpl<typeof AuditService> {
  return {
    listAudit: ({ limit = defaultLimit, pageToken, method, uid, target, afterSeq }) => {
      const filter = {
        method: method === "" ? undefined : fullName(method),
        uid,
        target: target === "" ? undefined : target,
        afterSeq: afterSeq === undefined ? undefined : Number(afterSeq),
      };
      const { records, nextPageToken } = audit.list(filter, limit, pageToken);
      return { records: records.map(messageOf), nextPageToken };
    },

    verifyAudit: async (_request, { signal }) => {
      const { problem, records, anchor, head } = await audit.verify(signal);
      return {
        valid: problem === undefined,
        problem: problem ?? "",
        records: BigInt(records),
        anchorSeq: BigInt(anchor.seq),
        anchorHash: hex(anchor.hash),
        headSeq: BigInt(head.seq),
        headHash: hex(head.hash),
      };
    },
  };
}

/** @throws SvcError `invalid_request` for an unknown method */
function fullName(name: string): string {
  const lowerName = name.replace(/\.(?=[^.]*$)/, "/").toLowerCase();
  const found = methodNames.find((method) => {
    const known = method.toLowerCase();
    return (
      known === name.toLowerCase() ||
      known === lowerName ||
      known.endsWith(`.${lowerName}`) ||
      known.endsWith(`/${lowerName}`)
    );
  });
  if (found === undefined) {
    throw invalidField("method", `unknown method "${name}"; use a name such as AppService.StartApp`);
  }
  return found;
}

function messageOf(row: AuditRow): MessageInitShape<typeof AuditRecordSchema> {
  return {
    seq: BigInt(row.seq),
    time: timestampFromMs(row.time),
    requestId: row.request_id,
    method: row.method,
    protocol: row.protocol,
    uid: row.uid,
    user: row.user,
    kind: row.kind,
    ...(row.owner_uid === null ? {} : { ownerUid: row.owner_uid }),
    ...(row.peer_uid === null ? {} : { peerUid: row.peer_uid }),
    tokenDigest: row.token_digest ?? "",
    target: row.target,
    result: row.result,
    reason: row.reason ?? "",
    durationMs: row.duration_ms,
    hash: hex(row.hash),
    address: row.address ?? "",
    attempts: row.attempts ?? 1,
  };
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}
