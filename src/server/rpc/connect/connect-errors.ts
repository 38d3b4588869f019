/** Converts `SvcError` to `ConnectError` with one `svc.v1.ErrorDetail`, and back for clients. */
import { create, type Message } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeFromString, codeToString } from "@connectrpc/connect/protocol-connect";
import { ErrorDetailSchema, type ErrorDetail } from "../../../../gen/svc/v1/error_pb.ts";
import type { ErrorDetailReason } from "../../../../gen/svc/v1/values.ts";
import { payloadOf } from "../../../error-payloads.ts";
import { SvcError, knownReason, type ReasonPayload } from "../../../errors.ts";
import { fitTrailers } from "../grpc-trailers.ts";

/** The detail of an error on Connect and gRPC. */
export function errorDetailOf(error: SvcError): ErrorDetail {
  const payload = payloadOf(error.reason, error.payload);
  return create(ErrorDetailSchema, {
    reason: error.reason,
    ...(payload && { payload: { case: payload.name, value: payload.value } as ErrorDetail["payload"] }),
  });
}

/**
 * The error for Connect, without its cause.
 * @param protocolName protocol of the response: gRPC's trailers are limited in size
 */
export function connectErrorOf(error: SvcError, protocolName?: string): ConnectError {
  const whole = new ConnectError(error.message, codeFromString(error.code), undefined, [
    { desc: ErrorDetailSchema, value: errorDetailOf(error) },
  ]);
  return protocolName === "grpc" ? fitTrailers(whole) : whole;
}

/** Converts an error that a client received to the daemon's error. */
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

/**
 * For a compressed message without a declared compression: the protocols require `internal` without a detail.
 */
export function unnamedCompression(): ConnectError {
  const message = "a message is compressed, but the request declares no compression";
  return new ConnectError(message, Code.Internal, undefined, undefined, new UnnamedCompression());
}

/** Whether it is {@link unnamedCompression}: a mistake of the client, which the protocols call internal. */
export function isUnnamedCompression(
  thrown: unknown,
): thrown is ConnectError & { cause: UnnamedCompression } {
  return thrown instanceof ConnectError && thrown.cause instanceof UnnamedCompression;
}

/**
 * Converts Connect's errors about unreadable requests. Connect reports invalid messages and wrong compression
 * as internal errors, although they are the caller's mistake.
 */
export function readingError(error: ConnectError): ConnectError | SvcError {
  if (isUnnamedCompression(error)) return error;
  if (error.code !== Code.Internal) return svcErrorOf(error);
  return new SvcError("invalid_request", `the message cannot be read: ${error.rawMessage}`, {
    payload: { violations: [] },
    cause: error,
  });
}
