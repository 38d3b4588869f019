/** How gRPC, gRPC-Web and Connect write messages into a request, as its headers say. */

export interface MessageForm {
  readonly isJson: boolean;
  /** Whether each message has flags and its length before it; otherwise one message is the whole body. */
  readonly isEnveloped: boolean;
  /** Says how messages are compressed. */
  readonly compressionHeader: string;
  /** Says how the answer may be compressed. */
  readonly acceptHeader: string;
}

const contentType = /^application\/(?:(grpc(?:-web)?)(?:\+(?:proto|(json)))?|(connect\+)?(?:proto|(json)))$/;

/** Undefined for what none of them takes. */
export function formOf(header: Headers): MessageForm | undefined {
  const type = (header.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  const match = contentType.exec(type);
  if (match === null) return undefined;
  const [, grpc, grpcJson, stream, connectJson] = match;
  const prefix = grpc !== undefined ? "grpc-" : stream !== undefined ? "connect-" : "";
  const isUnary = prefix === "";
  return {
    isJson: grpcJson !== undefined || connectJson !== undefined,
    isEnveloped: !isUnary,
    compressionHeader: prefix === "grpc-" ? "grpc-encoding" : `${prefix}content-encoding`,
    acceptHeader: prefix === "grpc-" ? "grpc-accept-encoding" : `${prefix}accept-encoding`,
  };
}
