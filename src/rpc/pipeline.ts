/**
 * The one way from any transport to a handler: access level, validation, handler, error mapping, audit (D2, D8).
 * The transport has identified the caller before.
 */
import { create } from "@bufbuild/protobuf";
import type {
  DescMessage,
  DescMethod,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  Message,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import type { ConnectRouter, HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { methodPolicies } from "../../gen/svc/v1/methods.ts";
import type { MethodPolicy } from "../../gen/svc/v1/methods.ts";
import type { SvcError } from "../errors.ts";
import { checkAccess, methodName } from "./access.ts";
import { collectCapabilities, indexMethods } from "./bound-service.ts";
import type { BoundService, Handler, MethodEntry } from "./bound-service.ts";
import { CallContext } from "./call-context.ts";
import type { Call } from "./call-context.ts";
import { CallNotes } from "./call-notes.ts";
import type { CallNotesOptions, NotedCaller } from "./call-notes.ts";
import { connectErrorOf } from "./connect-errors.ts";
import { handOver, watchRefusals } from "./connect-refusals.ts";
import { errorOfAbort, isSvcError, shownError } from "./error-mapping.ts";
import { closeIterator, peekFirst } from "./first-message.ts";
import type { FirstMessage } from "./first-message.ts";
import { createValidator } from "./rules.ts";
import { requestIdKey, userOf } from "./user-context.ts";
import type { UserContext } from "./user-context.ts";

export interface PipelineOptions extends CallNotesOptions {
  readonly services: readonly BoundService[];
  /** Ends all running calls; abort it with the error that they should end with. */
  readonly shutdownSignal?: AbortSignal | undefined;
  /** Policies of the methods by full name. Default: the contract's. A method without one is refused at creation. */
  readonly policies?: Readonly<Record<string, MethodPolicy>> | undefined;
}

export interface Pipeline {
  /** Calls that have not ended. */
  readonly callsInFlight: number;
  /** Sorted capability strings of the methods that are implemented (S 9). */
  readonly capabilities: readonly string[];
  /** Registers every method on a Connect router. */
  readonly routes: (router: ConnectRouter) => void;
  /** The method of a Connect or gRPC path, such as `/svc.v1.AppService/ListApps`. */
  methodAt(path: string): DescMethod | undefined;
  /** Whether a Connect or gRPC path is a method that answers without an identity: the health service's (D8). */
  isPublic(path: string): boolean;
  /** Ends the streams that only watch (`NO_SIDE_EFFECTS`), so that nobody waits for them when the daemon stops. */
  endStreams(reason: SvcError): void;
  /** Ends all running calls. */
  endCalls(reason: SvcError): void;
  /** For connect's `requestGate`: access is decided before a byte of the body is read. */
  readonly requestGate: (context: HandlerContext) => void;
  /**
   * Whether `user` may call `method`, before anything of the request's body is read.
   * @throws SvcError `permission_denied` with reason `token_denied` or `root_required`.
   */
  gate(method: DescMethod, user: UserContext, requestId?: string, protocolName?: string): void;
  /**
   * Notes a request that was answered without becoming a call: refused before, or a page.
   * @param method what it asked for; undefined when that is none of ours
   */
  noteAnswer(method: DescMethod | undefined, caller: NotedCaller, error?: SvcError): void;
  /** Calls a unary method. @throws SvcError and nothing else; so do the others. */
  invokeUnary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageShape<I>,
    call: Call,
  ): Promise<MessageShape<O>>;
  /** Calls a method that streams its answer. Leaving the loop ends the handler. */
  invokeServerStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageShape<I>,
    call: Call,
  ): AsyncIterable<MessageShape<O>>;
  /** Calls a method that takes a stream; its first message is validated. */
  invokeClientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodClientStreaming<I, O>,
    requests: AsyncIterable<MessageShape<I>>,
    call: Call,
  ): Promise<MessageShape<O>>;
}

/** @throws Error when a method has no handler or no policy */
export function createPipeline(options: PipelineOptions): Pipeline {
  const { services, shutdownSignal } = options;
  const notes = new CallNotes(options);
  const entries = indexMethods(services, options.policies ?? methodPolicies);
  const paths = new Map([...entries.values()].map(({ method, name }) => [`/${name}`, method]));
  const validator = createValidator();
  const running = new Set<CallContext>();
  const endCalls = (reason: unknown): void => {
    for (const context of running) context.abort(reason);
  };
  shutdownSignal?.addEventListener("abort", () => endCalls(shutdownSignal.reason));

  function entryOf(method: DescMethod): MethodEntry {
    const entry = entries.get(method);
    if (entry === undefined) throw new Error(`no handler for ${methodName(method)}`);
    return entry;
  }

  function begin(method: DescMethod, call: Call, connect?: HandlerContext): CallContext {
    const context = new CallContext(method, call, connect);
    running.add(context);
    if (shutdownSignal?.aborted === true) context.abort(shutdownSignal.reason);
    return context;
  }

  function end(context: CallContext): void {
    running.delete(context);
    context.end();
  }

  /** One answer, from one message or a stream of them. */
  function single(
    entry: MethodEntry,
    input: Message | AsyncIterable<Message>,
    call: Call,
    connect?: HandlerContext,
  ): Promise<Message> {
    const startMs = performance.now();
    const { method } = entry;
    const context = begin(method, call, connect);
    let request: Message | undefined;
    let stream: FirstMessage | undefined;

    /** What the handler answers, or the promise of it. */
    const start = (): unknown => {
      checkAccess(method, entry.access, context.user);
      return Symbol.asyncIterator in input ? handleStream(input) : handle(input, input);
    };
    const handleStream = async (messages: AsyncIterable<Message>): Promise<unknown> => {
      stream = await peekFirst(messages, context.signal);
      return handle(stream.first ?? create(method.input), stream.all);
    };
    const handle = (first: Message, whole: Message | AsyncIterable<Message>): unknown => {
      request = first;
      validator.check(method.input, first);
      // Its token may have been revoked while the request arrived.
      context.throwIfAborted();
      return entry.handler(whole, context);
    };
    // One promise instead of a chain of them, which would cost more than all else here.
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        end(context);
        stream?.close();
      };
      // What the handler came to is noted also when the caller has left before.
      const fail = (thrown: unknown): void => {
        const error = shownError(thrown, context.requestId, context.isAborted ? context.signal : undefined);
        notes.ended(entry, context, startMs, request, error);
        reject(error);
        leave();
      };
      const answer = (output: unknown): void => {
        let message: Message;
        try {
          message = create(method.output, output as MessageInitShape<DescMessage>);
        } catch (error) {
          fail(error);
          return;
        }
        notes.ended(entry, context, startMs, request);
        resolve(message);
        leave();
      };
      context.onAbort((error) => {
        reject(error);
        leave();
      });
      try {
        const output = start();
        if (output instanceof Promise) output.then(answer, fail);
        else answer(output);
      } catch (error) {
        fail(error);
      }
    });
  }

  /** Many answers. */
  async function* many(
    entry: MethodEntry,
    input: Message | AsyncIterable<Message>,
    call: Call,
    connect?: HandlerContext,
  ): AsyncGenerator<Message> {
    const startMs = performance.now();
    const { method } = entry;
    const context = begin(method, call, connect);
    const request = Symbol.asyncIterator in input ? undefined : input;
    let iterator: AsyncIterator<unknown> | undefined;
    let failure: SvcError | undefined;
    let isDone = false;
    try {
      checkAccess(method, entry.access, context.user);
      if (request !== undefined) validator.check(method.input, request);
      context.throwIfAborted();
      const output = entry.handler(input, context) as AsyncIterable<unknown>;
      iterator = output[Symbol.asyncIterator]();
      for (;;) {
        const next = await context.race(iterator.next());
        if (next.done === true) break;
        yield create(method.output, next.value as MessageInitShape<DescMessage>);
      }
      isDone = true;
    } catch (thrown) {
      failure = shownError(thrown, context.requestId, context.isAborted ? context.signal : undefined);
      throw failure;
    } finally {
      end(context);
      // Not awaited: a generator that hangs in its `next` would hold its `return` up as well.
      if (!isDone) void closeIterator(iterator);
      notes.ended(
        entry,
        context,
        startMs,
        request,
        failure ?? (isDone ? undefined : errorOfAbort(undefined)),
      );
    }
  }

  function gate(method: DescMethod, user: UserContext, requestId = "", protocolName = ""): void {
    const entry = entryOf(method);
    try {
      checkAccess(method, entry.access, user);
    } catch (error) {
      notes.answered(entry, { user, requestId, protocolName }, error as SvcError);
      throw error;
    }
  }

  return {
    get callsInFlight() {
      return running.size;
    },

    capabilities: collectCapabilities(services, options.policies),

    routes(router) {
      for (const { service } of services) {
        const methods = service.methods.map((method) => [method.localName, connectHandler(entryOf(method))]);
        router.service(service, Object.fromEntries(methods) as Partial<ServiceImpl<DescService>>);
      }
    },

    requestGate(context) {
      const { method, protocolName, values } = context;
      const caller = { user: userOf(context), requestId: values.get(requestIdKey), protocolName };
      try {
        gate(method, caller.user, caller.requestId, protocolName);
        watchRefusals(context, (error) => notes.answered(entryOf(method), caller, error));
      } catch (error) {
        throw isSvcError(error) ? connectErrorOf(error) : error;
      }
    },

    gate,

    noteAnswer(method, caller, error) {
      notes.answered(method === undefined ? undefined : entries.get(method), caller, error);
    },

    methodAt: (path) => paths.get(path),

    isPublic(path) {
      const method = paths.get(path);
      return method !== undefined && entryOf(method).isPublic;
    },

    endCalls,

    endStreams(reason) {
      for (const context of running) {
        if (context.method.methodKind === "server_streaming" && !entryOf(context.method).isChanging) {
          context.abort(reason);
        }
      }
    },

    invokeUnary: (method, request, call) => single(entryOf(method), request, call) as Promise<never>,
    invokeServerStream: (method, request, call) =>
      many(entryOf(method), request, call) as AsyncIterable<never>,
    invokeClientStream: (method, requests, call) => single(entryOf(method), requests, call) as Promise<never>,
  };

  /** The two shapes in which Connect calls handlers. */
  function connectHandler(entry: MethodEntry): Handler {
    const callOf = (context: HandlerContext): Call => {
      handOver(context);
      return {
        user: userOf(context),
        requestId: context.values.get(requestIdKey),
        protocolName: context.protocolName,
        signal: context.signal,
      };
    };
    const kind = entry.method.methodKind;
    if (kind === "unary" || kind === "client_streaming") {
      return async (input, context) => {
        try {
          return await single(entry, input as Message, callOf(context), context);
        } catch (error) {
          throw connectErrorOf(error as SvcError);
        }
      };
    }
    return async function* (input, context) {
      try {
        yield* many(entry, input as Message, callOf(context), context);
      } catch (error) {
        throw connectErrorOf(error as SvcError);
      }
    };
  }
}
