/** Sends error responses, in the request's protocol, for requests that do not reach a protocol adapter. */
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import {
  codeToHttpStatus,
  createEndStreamSerialization,
  endStreamFlag,
  errorToJsonBytes,
} from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import type { SvcError } from "../../errors.ts";
import { mediaType } from "../../lib/http-messages.ts";
import { dropUnread } from "../../lib/request-body.ts";
import { errorResponse } from "../rest/errors.ts";
import type { JsonWriter } from "../rest/json-writer.ts";
import { connectErrorOf } from "../rpc/connect/connect-errors.ts";
import type { HttpRequest, HttpResponse } from "../rpc/http-request.ts";

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | string;
}

/**
 * Sends `error`, and drops the rest of the request's body.
 * @param isProcedure whether the path is a Connect or gRPC procedure
 */
export function reject(
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
  // Without a body the headers end the stream, which gRPC's Go client requires for a response without
  // messages.
  if (request.method === "HEAD" || body.length === 0) response.end();
  else response.end(body);
}

function answerOf(type: string, error: SvcError, isProcedure: boolean, writer: JsonWriter): Answer {
  if (type.startsWith("application/grpc")) {
    // gRPC and gRPC-Web send status and details in the headers of a response without messages.
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
  const { status, headers, body } = errorResponse(writer, error);
  return {
    status,
    headers: { ...headers, "content-type": "application/json", "cache-control": "no-store" },
    body,
  };
}

/** An empty stream: one end envelope. */
function connectStreamAnswer(type: string, error: SvcError): Answer {
  const end = createEndStreamSerialization(undefined).serialize({
    metadata: new Headers(),
    error: connectErrorOf(error),
  });
  return { status: 200, headers: { "content-type": type }, body: encodeEnvelope(endStreamFlag, end) };
}
