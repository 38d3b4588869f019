/** Answers a request that never reaches its protocol's adapter, in the words of that protocol. */
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import {
  codeToHttpStatus,
  createEndStreamSerialization,
  endStreamFlag,
  errorToJsonBytes,
} from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import type { SvcError } from "../errors.ts";
import { mediaType } from "../lib/http-messages.ts";
import { dropUnread } from "../lib/request-body.ts";
import { errorAnswer } from "../rest/errors.ts";
import type { JsonWriter } from "../rest/json-writer.ts";
import { connectErrorOf } from "../rpc/connect-errors.ts";
import type { HttpRequest, HttpResponse } from "./http.ts";

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | string;
}

/**
 * Sends `error` and drops what still comes of the request's body.
 * @param isProcedure whether the path is one of Connect's
 */
export function refuse(
  request: HttpRequest,
  response: HttpResponse,
  error: SvcError,
  { isProcedure, writer }: { isProcedure: boolean; writer: JsonWriter },
): void {
  if (response.headersSent || response.writableEnded) {
    response.destroy();
    return;
  }
  const { status, headers, body } = answerOf(mediaType(request), error, isProcedure, writer);
  dropUnread(request, response);
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.setHeader("content-length", Buffer.byteLength(body));
  response.statusCode = status;
  // Without a body the headers themselves end the stream, as gRPC's clients in Go ask of an answer without messages.
  if (request.method === "HEAD" || body.length === 0) response.end();
  else response.end(body);
}

function answerOf(type: string, error: SvcError, isProcedure: boolean, writer: JsonWriter): Answer {
  if (type.startsWith("application/grpc")) {
    // Status and details ride in the headers of an answer without messages, for gRPC and gRPC-Web alike.
    const headers = setTrailerStatus(new Headers({ "content-type": type }), connectErrorOf(error));
    return { status: 200, headers: Object.fromEntries(headers), body: "" };
  }
  if (type.startsWith("application/connect+")) return connectStreamAnswer(type, error);
  if (isProcedure) {
    const connectError = connectErrorOf(error);
    return {
      status: codeToHttpStatus(connectError.code),
      headers: { "content-type": "application/json" },
      body: errorToJsonBytes(connectError, undefined),
    };
  }
  const { status, headers, body } = errorAnswer(writer, error);
  return {
    status,
    headers: { ...headers, "content-type": "application/json", "cache-control": "no-store" },
    body,
  };
}

/** A stream that ends at once: one envelope with its end. */
function connectStreamAnswer(type: string, error: SvcError): Answer {
  const end = createEndStreamSerialization(undefined).serialize({
    metadata: new Headers(),
    error: connectErrorOf(error),
  });
  return { status: 200, headers: { "content-type": type }, body: encodeEnvelope(endStreamFlag, end) };
}
