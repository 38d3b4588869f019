/** `SvcError` to `ConnectError` with one `svc.v1.ErrorDetail`, and back for clients (D7). */
import { create, type Message } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeFromString, codeToString } from "@connectrpc/connect/protocol-connect";
import { ErrorDetailSchema, type ErrorDetail } from "../../gen/svc/v1/error_pb.ts";
import type { ErrorDetailReason } from "../../gen/svc/v1/words.ts";
import { payloadOf } from "../error-payloads.ts";
import { SvcError, knownReason, type ReasonPayload } from "../errors.ts";
import { fitTrailers } from "./grpc-trailers.ts";

/** The detail that rides with an error on Connect and gRPC. */
function errorDetailOf(error: SvcError): ErrorDetail {
  const payload = payloadOf(error.reason, error.payload);
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
  const whole = new ConnectError(error.message, codeFromString(error.code), undefined, [
    { desc: ErrorDetailSchema, value: errorDetailOf(error) },
  ]);
  return protocolName === "grpc" ? fitTrailers(whole) : whole;
}

/** What a client got, as the error that the daemon threw. */
export function svcErrorOf(error: ConnectError): SvcError {
  const detail = error.findDetails(ErrorDetailSchema)[0];
  const reason = knownReason(detail?.reason, codeToString(error.code));
  const payload: Message | undefined = detail?.payload.value;
  return new SvcError(reason, error.rawMessage, {
    cause: error,
    ...(payload === undefined ? {} : { payload: payload as ReasonPayload<ErrorDetailReason> & object }),
  });
}

class UnnamedCompression extends Error {}

/** Of a message that is compressed where the request names no compression: the protocols prescribe `internal`, and no detail. */
export function unnamedCompression(): ConnectError {
  const message = "a message is compressed, but the request names no compression";
  return new ConnectError(message, Code.Internal, undefined, undefined, new UnnamedCompression());
}

/**
 * What Connect says of a request that it cannot read, as the error that it is. It calls bytes that are no message, or not
 * compressed in the way that they say, an internal error: they are the caller's mistake, as any other breach of the contract.
 */
export function readingError(error: ConnectError): ConnectError | SvcError {
  if (error.cause instanceof UnnamedCompression) return error;
  if (error.code !== Code.Internal) return svcErrorOf(error);
  return new SvcError("invalid_request", `the message cannot be read: ${error.rawMessage}`, {
    payload: { violations: [] },
    cause: error,
  });
}
