/**
 * Conversations with the daemon, in which both sides speak as they like: gRPC over HTTP/2, which Connect's protocol over
 * HTTP/1.1 cannot. Loaded by the commands that have one.
 */
import { connect } from "node:net";
import type { DescMessage, DescMethodStreaming, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { base64Encode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import type { CallOptions, Method } from "./client.ts";
import { connectError } from "./connect-client.ts";
import type { Endpoint } from "./http.ts";

const baseUrl = "http://localhost";

/** @throws SvcError with the daemon's code, reason and payload */
export async function* invokeGrpc<I extends DescMessage, O extends DescMessage>(
  { socketPath, headers }: Endpoint,
  method: Method<I, O>,
  requests: AsyncIterable<MessageInitShape<I>>,
  { signal, timeoutMs }: CallOptions = {},
): AsyncGenerator<MessageShape<O>> {
  const sessionManager = new Http2SessionManager(
    baseUrl,
    {},
    { createConnection: () => connect(socketPath) },
  );
  const transport = createGrpcTransport({ baseUrl, sessionManager });
  try {
    const kind = method as unknown as DescMethodStreaming<I, O>;
    const answer = await transport.stream(kind, signal, timeoutMs, headers, requests);
    yield* answer.message;
  } catch (error) {
    throw asSvcError(ConnectError.from(error));
  } finally {
    sessionManager.abort();
  }
}

function asSvcError({ code, rawMessage, details }: ConnectError) {
  const word = Code[code].replace(/(?<=.)[A-Z]/g, "_$&").toLowerCase();
  return connectError({
    code: word,
    message: rawMessage,
    details: details.flatMap((detail) =>
      "type" in detail ? [{ type: detail.type, value: base64Encode(detail.value) }] : [],
    ),
  });
}
