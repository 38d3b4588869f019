/** The error message in gRPC trailers, escaped only as far as the protocol requires. */
import type { ConnectError } from "@connectrpc/connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";

const headerName = "grpc-message";

/**
 * Like Connect's function, which escapes all but letters and digits: some clients do not unescape and show
 * `%3A`.
 */
export function setGrpcStatus(trailers: Headers, error: ConnectError): Headers {
  setTrailerStatus(trailers, error);
  trailers.set(headerName, encodeGrpcMessage(error.rawMessage));
  return trailers;
}

/** Applies the same escaping to trailers that Connect has written. */
export function escapeLess(trailers: Headers | undefined): void {
  const message = trailers?.get(headerName) ?? "";
  if (message.includes("%")) trailers?.set(headerName, encodeGrpcMessage(decodeURIComponent(message)));
}

/** Escapes all but printable ASCII, and the percent sign (grpc's PROTOCOL-HTTP2.md). */
function encodeGrpcMessage(message: string): string {
  return message.replaceAll(/[^ -$&-~]+/g, (text) =>
    Array.from(Buffer.from(text), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join(""),
  );
}
