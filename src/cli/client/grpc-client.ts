/**
 * Bidirectional streams with the daemon: gRPC over HTTP/2, because Connect's protocol over HTTP/1.1 does not
 * support them. Loaded only by the commands that need it.
 */
import { connect } from "node:net";
import type { DescMessage, DescMethodStreaming, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { base64Encode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { SvcError } from "../../errors.ts";
import { keepAliveHeader, withoutKeepAlives } from "../../lib/keep-alive.ts";
import type { CallOptions, Method } from "./client.ts";
import { connectError } from "./connect-client.ts";
import { canceled, type Endpoint, type RemoteEndpoint, type SocketEndpoint } from "./http.ts";

const baseUrl = "http://localhost";

/** @throws SvcError with the daemon's code, reason and payload */
export async function* invokeGrpc<I extends DescMessage, O extends DescMessage>(
  endpoint: Endpoint,
  method: Method<I, O>,
  requests: AsyncIterable<MessageInitShape<I>>,
  { signal, timeoutMs }: CallOptions = {},
): AsyncGenerator<MessageShape<O>> {
  using sessionManager = "socketPath" in endpoint ? ownSession(endpoint) : sharedSession(endpoint);
  const transport = createGrpcTransport({ baseUrl, sessionManager });
  try {
    const kind = method as unknown as DescMethodStreaming<I, O>;
    const headers = { ...endpoint.headers, [keepAliveHeader]: "1" };
    const answer = await transport.stream(kind, signal, timeoutMs, headers, requests);
    yield* withoutKeepAlives(method.output, answer.message);
  } catch (error) {
    if (signal?.aborted === true) throw canceled();
    if (isPrematureClose(error))
      throw new SvcError("unavailable", "the daemon's response ended early", { cause: error });
    throw asSvcError(ConnectError.from(error));
  }
}

type Session = Pick<Http2SessionManager, "authority" | "request" | "notifyResponseByteRead"> & Disposable;

function ownSession({ socketPath }: SocketEndpoint): Session {
  const manager = new Http2SessionManager(baseUrl, {}, { createConnection: () => connect(socketPath) });
  return Object.assign(manager, { [Symbol.dispose]: () => manager.abort() });
}

/** The session also serves other calls, and closes with the command. */
function sharedSession(endpoint: RemoteEndpoint): Session {
  return {
    authority: baseUrl,
    request: (method, path, headers) => endpoint.request({ ...headers, ":method": method, ":path": path }),
    notifyResponseByteRead: () => undefined,
    [Symbol.dispose]: () => undefined,
  };
}

/** Whether the connection broke in the middle of a response; Node calls this a premature close. */
function isPrematureClose(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return ("code" in error && error.code === "ERR_STREAM_PREMATURE_CLOSE") || isPrematureClose(error.cause);
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
