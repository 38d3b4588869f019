/** `SvcError` to `ConnectError` with one `svc.v1.ErrorDetail`, and back for clients (D7). */
import { create } from "@bufbuild/protobuf";
import type { Message } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema } from "../../gen/svc/v1/error_pb.ts";
import type { ErrorDetail } from "../../gen/svc/v1/error_pb.ts";
import type { ErrorDetailReason } from "../../gen/svc/v1/words.ts";
import { payloadOf } from "../error-payloads.ts";
import { SvcError, knownReason } from "../errors.ts";
import type { ErrorCode, ReasonPayload } from "../errors.ts";
import { fitTrailers } from "./grpc-trailers.ts";

const codes: Readonly<Record<ErrorCode, Code>> = {
  canceled: Code.Canceled,
  invalid_argument: Code.InvalidArgument,
  deadline_exceeded: Code.DeadlineExceeded,
  not_found: Code.NotFound,
  already_exists: Code.AlreadyExists,
  permission_denied: Code.PermissionDenied,
  resource_exhausted: Code.ResourceExhausted,
  failed_precondition: Code.FailedPrecondition,
  aborted: Code.Aborted,
  out_of_range: Code.OutOfRange,
  unimplemented: Code.Unimplemented,
  internal: Code.Internal,
  unavailable: Code.Unavailable,
  data_loss: Code.DataLoss,
  unauthenticated: Code.Unauthenticated,
};

const codeNames = new Map(Object.entries(codes).map(([name, code]) => [code, name]));

/** The detail that rides with an error on Connect and gRPC. */
function errorDetailOf(error: SvcError): ErrorDetail {
  const payload = payloadOf(error);
  return create(ErrorDetailSchema, {
    reason: error.reason,
    ...(payload && { payload: { case: payload.name, value: payload.value } as ErrorDetail["payload"] }),
  });
}

/**
 * The error as Connect sends it. Its cause stays behind.
 * @param protocolName that it is sent over: gRPC's trailers may have no room for all of it
 */
export function connectErrorOf(error: SvcError, protocolName?: string): ConnectError {
  const whole = new ConnectError(error.message, codes[error.code], undefined, [
    { desc: ErrorDetailSchema, value: errorDetailOf(error) },
  ]);
  return protocolName === "grpc" ? fitTrailers(whole) : whole;
}

/** What a client got, as the error that the daemon threw. */
export function svcErrorOf(error: ConnectError): SvcError {
  const detail = error.findDetails(ErrorDetailSchema)[0];
  const reason = knownReason(detail?.reason, codeNames.get(error.code));
  const payload: Message | undefined = detail?.payload.value;
  return new SvcError(reason, error.rawMessage, {
    cause: error,
    ...(payload === undefined ? {} : { payload: payload as ReasonPayload<ErrorDetailReason> & object }),
  });
}

/** Words of Connect and Connect for Node for bytes that are no message of the type, or are not packed as they say. */
const unreadable = /^(?:parse binary: (.*)|decompression failed)$/s;

/** Bytes that cannot be read, as the error that they are; undefined for any other. */
export function unreadableError(error: ConnectError): SvcError<"invalid_request"> | undefined {
  const match = unreadable.exec(error.rawMessage);
  if (error.code !== Code.Internal || match === null) return undefined;
  const why = match[1] ?? "it is not packed in the way that it says";
  return new SvcError("invalid_request", `the message cannot be read: ${why}`, {
    payload: { violations: [] },
    cause: error,
  });
}
