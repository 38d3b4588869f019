/** Operations as messages of the contract. */
import { fromJson, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ErrorDetailSchema } from "../../../gen/svc/v1/error_pb.ts";
import type {
  OperationErrorSchema,
  OperationLineSchema,
  OperationSchema,
} from "../../../gen/svc/v1/operation_pb.ts";
import type { OperationFailure, OperationLine, OperationRecord } from "../../operations/operation-record.ts";

export async function operationMessage(
  record: OperationRecord,
  userName: (uid: number) => Promise<string>,
  lines: readonly OperationLine[] = [],
): Promise<MessageInitShape<typeof OperationSchema>> {
  const { id, kind, appId, ownerUid, callerUid, state, phase, message, service, detached } = record;
  const { startedAtMs, endedAtMs, doneBytes, totalBytes, stepNumber, stepCount, error, result } = record;
  return {
    ...{ id, kind, appId, owner: ownerUid, caller: callerUid, state, phase, message, service, detached },
    log: lines.map(lineMessage),
    callerName: await userName(callerUid),
    startedAt: timestampFromMs(startedAtMs),
    ...(endedAtMs !== undefined && { endedAt: timestampFromMs(endedAtMs) }),
    ...(doneBytes !== undefined && { doneBytes: BigInt(doneBytes) }),
    ...(totalBytes !== undefined && { totalBytes: BigInt(totalBytes) }),
    ...(stepNumber !== undefined && { stepNumber }),
    ...(stepCount !== undefined && { stepCount }),
    ...(error !== undefined && { error: errorMessage(error) }),
    ...(result !== undefined && { result }),
  };
}

export function lineMessage({
  number,
  atMs,
  phase,
  text,
  stepNumber,
  stepCount,
  service = "",
}: OperationLine): MessageInitShape<typeof OperationLineSchema> {
  return {
    ...{ number, time: timestampFromMs(atMs), phase, text, service },
    ...(stepNumber !== undefined && { stepNumber }),
    ...(stepCount !== undefined && { stepCount }),
  };
}

function errorMessage({
  message,
  code,
  detail,
}: OperationFailure): MessageInitShape<typeof OperationErrorSchema> {
  return { message, code, detail: fromJson(ErrorDetailSchema, detail, { ignoreUnknownFields: true }) };
}
