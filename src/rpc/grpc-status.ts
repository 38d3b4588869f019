/** The message of a failed gRPC call as its trailers have it: escaped as the protocol needs, and no more. */
import type { ConnectError } from "@connectrpc/connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";

const headerName = "grpc-message";

/** As Connect's own, which escapes all but letters and digits: clients that do not take that back show `%3A`. */
export function setGrpcStatus(trailers: Headers, error: ConnectError): Headers {
  setTrailerStatus(trailers, error);
  trailers.set(headerName, encodeGrpcMessage(error.rawMessage));
  return trailers;
}

/** The same for trailers that Connect has written. */
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
