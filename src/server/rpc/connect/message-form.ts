/** The message format of a gRPC, gRPC-Web or Connect request, from its headers. */

export interface MessageForm {
  readonly isJson: boolean;
  /** Whether each message is preceded by flags and its length; otherwise the body is one message. */
  readonly isEnveloped: boolean;
  /** Header with the compression of messages. */
  readonly compressionHeader: string;
  /** Header with the accepted compressions of the response. */
  readonly acceptHeader: string;
}

const contentType = /^application\/(?:(grpc(?:-web)?)(?:\+(?:proto|(json)))?|(connect\+)?(?:proto|(json)))$/;

/** Undefined for other content types. */
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
