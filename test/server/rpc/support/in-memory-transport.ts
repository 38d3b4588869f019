/**
 * A client transport that calls the pipeline in this process: access, validation, errors and audit as over a socket,
 * without one. Connect's own `createRouterTransport` drops context values and costs ten times as much.
 */
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodStreaming,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import { SvcError } from "../../../../src/errors.ts";
import type { Call } from "../../../../src/server/rpc/call-context.ts";
import { connectErrorOf } from "../../../../src/server/rpc/connect/connect-errors.ts";
import { isSvcError } from "../../../../src/server/rpc/error-mapping.ts";
import type { Pipeline } from "../../../../src/server/rpc/pipeline.ts";
import type { UserContext } from "../../../../src/server/rpc/user-context.ts";

export interface InMemoryTransportOptions {
  readonly pipeline: Pipeline;
  /** The caller of all calls through this transport. */
  readonly user: UserContext;
  /** A new ID for each call. */
  readonly nextRequestId: () => string;
}

/** Failures are ConnectErrors, as of any transport; `svcErrorOf` reads them. */
export function createInMemoryTransport(options: InMemoryTransportOptions): Transport {
  const { pipeline, user, nextRequestId } = options;
  const callOf = (signal: AbortSignal | undefined, timeoutMs: number | undefined): Call => ({
    user,
    requestId: nextRequestId(),
    protocolName: "in-memory",
    signal,
    timeoutMs,
  });

  return {
    async unary(method, signal, timeoutMs, _header, input) {
      const message = await asConnect(
        pipeline.invoke(method, create(method.input, input), callOf(signal, timeoutMs)),
      );
      return { ...answerOf(method), stream: false, method, message };
    },

    stream(method, signal, timeoutMs, _header, input) {
      const messages = streamMessages(pipeline, method, input, callOf(signal, timeoutMs));
      return Promise.resolve({ ...answerOf(method), stream: true, method, message: messages as never });
    },
  };
}

function answerOf(method: DescMethod) {
  return { service: method.parent, header: new Headers(), trailer: new Headers() };
}

async function* streamMessages(
  pipeline: Pipeline,
  method: DescMethodStreaming,
  input: AsyncIterable<MessageInitShape<DescMessage>>,
  call: Call,
): AsyncGenerator<Message> {
  try {
    switch (method.methodKind) {
      case "client_streaming":
        yield await pipeline.invoke(method, createEach(method.input, input), call);
        return;
      case "server_streaming":
        for await (const request of createEach(method.input, input)) {
          yield* pipeline.invokeStream(method, request, call);
          return;
        }
        throw new SvcError("invalid_request", "the call has no request message");
      case "bidi_streaming":
        yield* pipeline.invokeStream(method, createEach(method.input, input), call);
    }
  } catch (error) {
    throw isSvcError(error) ? connectErrorOf(error) : error;
  }
}

async function* createEach(
  type: DescMessage,
  inputs: AsyncIterable<MessageInitShape<DescMessage>>,
): AsyncGenerator<Message> {
  for await (const input of inputs) yield create(type, input);
}

async function asConnect<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw isSvcError(error) ? connectErrorOf(error) : error;
  }
}
