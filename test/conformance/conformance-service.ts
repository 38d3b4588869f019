/**
 * Connect's ConformanceService: returns what a request's definition requires, and reports what arrived. Its descriptors
 * come from the suite itself, so the messages have their types only here.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { FileRegistry, Message } from "@bufbuild/protobuf";
import { anyPack, type Any } from "@bufbuild/protobuf/wkt";
import {
  ConnectError,
  createContextKey,
  type ContextKey,
  type HandlerContext,
  type Code,
} from "@connectrpc/connect";
import { type BoundService, unimplemented } from "../../src/server/rpc/bound-service.ts";
import { bindService } from "../support/bind-service.ts";

const packageName = "connectrpc.conformance.v1";

/**
 * The error that the suite requires, with its own details. The pipeline gives every error svc's one detail, so the
 * server replaces it at the outermost layer.
 */
export const expectedErrorKey: ContextKey<ConnectError | undefined> = createContextKey(
  undefined as ConnectError | undefined,
);

interface Header {
  readonly name: string;
  readonly value: string[];
}

interface ExpectedError {
  readonly code: Code;
  readonly message?: string;
  readonly details: Any[];
}

interface UnaryDefinition {
  readonly responseHeaders: Header[];
  readonly responseTrailers: Header[];
  readonly responseDelayMs: number;
  readonly response:
    | { case: "responseData"; value: Uint8Array }
    | { case: "error"; value: ExpectedError }
    | { case: undefined };
}

interface StreamDefinition {
  readonly responseHeaders: Header[];
  readonly responseTrailers: Header[];
  readonly responseDelayMs: number;
  readonly responseData: Uint8Array[];
  readonly error?: ExpectedError;
}

interface UnaryRequest extends Message {
  readonly responseDefinition?: UnaryDefinition;
}

interface StreamRequest extends Message {
  readonly responseDefinition?: StreamDefinition;
  readonly fullDuplex?: boolean;
}

type Answer = Record<string, unknown>;

export function conformanceService(registry: FileRegistry): BoundService {
  const service = registry.getService(`${packageName}.ConformanceService`);
  if (service === undefined) throw new Error("the suite's descriptors contain no ConformanceService");
  const handlers = new Handlers(registry);
  return bindService(service, {
    unary: handlers.unary,
    idempotentUnary: handlers.unary,
    clientStream: handlers.clientStream,
    serverStream: handlers.serverStream,
    bidiStream: handlers.bidiStream,
    unimplemented,
  } as never);
}

class Handlers {
  readonly #registry: FileRegistry;

  constructor(registry: FileRegistry) {
    this.#registry = registry;
  }

  readonly unary = async (request: UnaryRequest, context: HandlerContext): Promise<Answer> =>
    this.#answer([request], request.responseDefinition, context);

  readonly clientStream = async (
    requests: AsyncIterable<UnaryRequest>,
    context: HandlerContext,
  ): Promise<Answer> => {
    const received: UnaryRequest[] = [];
    for await (const request of requests) received.push(request);
    return this.#answer(received, received[0]?.responseDefinition, context);
  };

  readonly serverStream = (request: StreamRequest, context: HandlerContext): AsyncIterable<Answer> =>
    this.#stream([request], request.responseDefinition, context);

  readonly bidiStream = async function* (
    this: Handlers,
    requests: AsyncIterable<StreamRequest>,
    context: HandlerContext,
  ): AsyncGenerator<Answer> {
    const received: StreamRequest[] = [];
    let sent = 0;
    for await (const request of requests) {
      received.push(request);
      const [first] = received;
      if (first?.fullDuplex !== true) continue;
      const { responseDefinition: definition } = first;
      if (received.length === 1) setHeaders(definition, context);
      const data = definition?.responseData[sent];
      if (definition === undefined || data === undefined) break;
      await delay(definition.responseDelayMs);
      yield { payload: { data, requestInfo: this.#requestInfo([request], context, sent > 0) } };
      sent++;
    }
    const [first] = received;
    const definition = first?.responseDefinition;
    if (first?.fullDuplex !== true) {
      yield* this.#stream(received, definition, context);
      return;
    }
    for (const data of definition?.responseData.slice(sent) ?? []) {
      await delay(definition?.responseDelayMs);
      yield { payload: { data, ...(sent === 0 && { requestInfo: this.#requestInfo(received, context) }) } };
      sent++;
    }
    this.#throwExpected(definition?.error, sent === 0 ? received : undefined, context);
  }.bind(this);

  async #answer(
    received: readonly Message[],
    definition: UnaryDefinition | undefined,
    context: HandlerContext,
  ): Promise<Answer> {
    setHeaders(definition, context);
    await delay(definition?.responseDelayMs ?? 0);
    const response = definition?.response;
    if (response?.case === "error") this.#throwExpected(response.value, received, context);
    const data = response?.case === "responseData" ? response.value : new Uint8Array();
    return { payload: { data, requestInfo: this.#requestInfo(received, context) } };
  }

  async *#stream(
    received: readonly Message[],
    definition: StreamDefinition | undefined,
    context: HandlerContext,
  ): AsyncGenerator<Answer> {
    setHeaders(definition, context);
    let sent = 0;
    for (const data of definition?.responseData ?? []) {
      await delay(definition?.responseDelayMs);
      yield { payload: { data, ...(sent === 0 && { requestInfo: this.#requestInfo(received, context) }) } };
      sent++;
    }
    this.#throwExpected(definition?.error, sent === 0 ? received : undefined, context);
  }

  /** @param received reported by the error if no response reported it before */
  #throwExpected(
    error: ExpectedError | undefined,
    received: readonly Message[] | undefined,
    context: HandlerContext,
  ): void {
    if (error === undefined) return;
    const expected = new ConnectError(error.message ?? "", error.code);
    // Received details are sent unchanged.
    expected.details = error.details.map(({ typeUrl, value }) => ({
      type: typeUrl.slice(typeUrl.lastIndexOf("/") + 1),
      value,
    }));
    if (received !== undefined) {
      const desc = this.#registry.getMessage(`${packageName}.ConformancePayload.RequestInfo`);
      if (desc === undefined) throw new Error("the suite's descriptors contain no RequestInfo");
      expected.details.push({ desc, value: this.#requestInfo(received, context) });
    }
    context.values.set(expectedErrorKey, expected);
    throw expected;
  }

  /** @param briefly only the requests, because the first response contained the rest */
  #requestInfo(received: readonly Message[], context: HandlerContext, briefly = false): Answer {
    const requests = received.map((request) => {
      const desc = this.#registry.getMessage(request.$typeName);
      if (desc === undefined) throw new Error(`no descriptor of ${request.$typeName}`);
      return anyPack(desc, request);
    });
    if (briefly) return { requests };
    const timeoutMs = context.timeoutMs();
    const query = new URL(context.url).searchParams;
    return {
      requests,
      requestHeaders: headersOf(context.requestHeader),
      ...(timeoutMs !== undefined && { timeoutMs: BigInt(Math.round(timeoutMs)) }),
      ...(context.requestMethod === "GET" && { connectGetInfo: { queryParams: headersOf(query) } }),
    };
  }
}

function headersOf(entries: Headers | URLSearchParams): Header[] {
  return [...entries].map(([name, value]) => ({ name, value: [value] }));
}

function setHeaders(
  definition: Pick<UnaryDefinition, "responseHeaders" | "responseTrailers"> | undefined,
  { responseHeader, responseTrailer }: HandlerContext,
): void {
  for (const [headers, target] of [
    [definition?.responseHeaders, responseHeader],
    [definition?.responseTrailers, responseTrailer],
  ] as const) {
    for (const { name, value } of headers ?? []) for (const one of value) target.append(name, one);
  }
}
