/** `SvcError` to `ConnectError` with one `svc.v1.ErrorDetail`, and back for clients (D7). */
import { create } from "@bufbuild/protobuf";
import type { Message } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema } from "../../gen/svc/v1/error_pb.ts";
import type { ErrorDetail } from "../../gen/svc/v1/error_pb.ts";
import { ErrorDetailReasons } from "../../gen/svc/v1/words.ts";
import type { ErrorDetailReason } from "../../gen/svc/v1/words.ts";
import { payloadOf } from "../error-payloads.ts";
import { SvcError } from "../errors.ts";
import type { ErrorCode, ReasonPayload } from "../errors.ts";
import { fitTrailers } from "./grpc-trailers.ts";

const codes: Readonly<Record<ErrorCode, Code>> = {
  canceled: Code.Canceled,
  unknown: Code.Unknown,
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

const codeNames = new Map(Object.entries(codes).map(([name, code]) => [code, name as ErrorCode]));

/** What a code means when nobody gave a reason. */
const reasonByCode: Readonly<Record<ErrorCode, ErrorDetailReason>> = {
  invalid_argument: "invalid_request",
  out_of_range: "invalid_request",
  unauthenticated: "unauthenticated",
  permission_denied: "denied",
  not_found: "not_found",
  already_exists: "already_exists",
  failed_precondition: "not_ready",
  aborted: "unavailable",
  resource_exhausted: "too_many",
  canceled: "canceled",
  internal: "internal",
  unknown: "internal",
  data_loss: "internal",
  unimplemented: "not_implemented",
  unavailable: "unavailable",
  deadline_exceeded: "deadline_exceeded",
};

/** The code's name, as D8 and REST spell it. */
function codeName(code: Code): ErrorCode {
  return codeNames.get(code) ?? "unknown";
}

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

/** What a client got, as the error that the daemon threw; one without our detail gets the reason that its code implies. */
export function svcErrorOf(error: ConnectError): SvcError {
  const code = codeName(error.code);
  const detail = error.findDetails(ErrorDetailSchema)[0];
  if (detail === undefined || !isReason(detail.reason)) {
    return new SvcError(code, reasonByCode[code], error.rawMessage, { cause: error });
  }
  const payload: Message | undefined = detail.payload.value;
  return new SvcError(code, detail.reason, error.rawMessage, {
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
  return new SvcError("invalid_argument", "invalid_request", `the message cannot be read: ${why}`, {
    payload: { violations: [] },
    cause: error,
  });
}

function isReason(word: string): word is ErrorDetailReason {
  return (ErrorDetailReasons as readonly string[]).includes(word);
}
