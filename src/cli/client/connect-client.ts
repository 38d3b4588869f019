/**
 * Calls any method over the Connect protocol with binary messages (HTTP/1.1). Only streaming commands load
 * this module: protobuf and its descriptors cost more than the rest of a short command.
 */
import {
  create,
  fromBinary,
  toBinary,
  type DescMessage,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { ErrorDetailSchema } from "../../../gen/svc/v1/error_pb.ts";
import type { ErrorDetailReason } from "../../../gen/svc/v1/values.ts";
import { SvcError, knownReason, type ReasonPayload } from "../../errors.ts";
import { keepAliveHeader } from "../../lib/keep-alive.ts";
import type { CallOptions, Method, Requests } from "./client.ts";
import { encodeEnvelope, endStreamFlag, readEnvelopes } from "./envelope.ts";
import { readAll, send, type Endpoint } from "./http.ts";

/** A Connect error, as in a unary body or at the end of a stream. */
interface ConnectErrorJson {
  readonly code?: string;
  readonly message?: string;
  readonly details?: readonly { readonly type?: string; readonly value?: string }[];
}

/**
 * Calls a method. A method that takes a stream gets all of `requests`; other methods get the first.
 * @throws SvcError with the daemon's code, reason and payload
 */
export async function* invokeConnect<I extends DescMessage, O extends DescMessage>(
  endpoint: Endpoint,
  method: Method<I, O>,
  requests: Requests<I>,
  options: CallOptions = {},
): AsyncGenerator<MessageShape<O>> {
  const unary = method.methodKind === "unary";
  const asksForKeepAlives = !unary && !("socketPath" in endpoint);
  const encode = (request: MessageInitShape<I>): Uint8Array =>
    toBinary(method.input, create(method.input, request));
  const answer = await send(endpoint, {
    method: "POST",
    path: `/${method.parent.typeName}/${method.name}`,
    headers: {
      "connect-protocol-version": "1",
      "content-type": unary ? "application/proto" : "application/connect+proto",
      // A remote daemon may be behind a proxy, which closes silent responses.
      ...(asksForKeepAlives ? { [keepAliveHeader]: "1" } : {}),
      ...(options.timeoutMs === undefined ? {} : { "connect-timeout-ms": String(options.timeoutMs) }),
    },
    body: bodyOf(requests, encode, unary),
    signal: options.signal,
    timeoutMs: options.timeoutMs,
  });
  if (answer.status !== 200) throw bodyError(answer.status, await readAll(answer));
  if (unary) {
    yield fromBinary(method.output, await readAll(answer));
    return;
  }
  for await (const { flags, data } of readEnvelopes(answer.body)) {
    if ((flags & endStreamFlag) === 0) {
      if (asksForKeepAlives && data.length === 0) continue;
      yield fromBinary(method.output, data);
      continue;
    }
    const end = JSON.parse(data.toString("utf8")) as { error?: ConnectErrorJson };
    if (end.error !== undefined) throw connectError(end.error);
    return;
  }
  throw new SvcError("unavailable", "the daemon's response ended early");
}

/** The request body; for a stream that is still being produced, its pieces. */
function bodyOf<M>(
  requests: readonly M[] | AsyncIterable<M>,
  encode: (request: M) => Uint8Array,
  unary: boolean,
): Uint8Array | AsyncIterable<Uint8Array> | undefined {
  if (Symbol.asyncIterator in requests) {
    return (async function* () {
      for await (const request of requests) yield encodeEnvelope(0, encode(request));
    })();
  }
  const bodies = requests.map(encode);
  return unary ? bodies[0] : Buffer.concat(bodies.map((body) => encodeEnvelope(0, body)));
}

function bodyError(status: number, body: Buffer): SvcError {
  try {
    return connectError(JSON.parse(body.toString("utf8")) as ConnectErrorJson);
  } catch {
    const message = `the server is not an svc daemon: it responded with HTTP ${status}`;
    return new SvcError("unavailable", message);
  }
}

/** Converts a Connect error with its `svc.v1.ErrorDetail` back to the SvcError that the daemon threw. */
export function connectError(error: ConnectErrorJson): SvcError {
  const detail = error.details?.find(({ type }) => type === ErrorDetailSchema.typeName);
  const { reason, payload } = fromBinary(ErrorDetailSchema, base64Decode(detail?.value ?? ""));
  return new SvcError(knownReason(reason, error.code), error.message ?? error.code ?? "unknown", {
    ...(payload.value === undefined ? {} : { payload: payload.value as ReasonPayload<ErrorDetailReason> }),
  });
}
