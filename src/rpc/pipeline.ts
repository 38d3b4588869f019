/**
 * The one way from any transport to a handler: access level, validation, handler, error mapping, audit (D2, D8).
 * The transport has identified the caller before.
 */
import type {
  DescMessage,
  DescMethod,
  DescMethodBiDiStreaming,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  JsonReadOptions,
  JsonWriteOptions,
  Message,
  MessageShape,
} from "@bufbuild/protobuf";
import type { ConnectRouter, HandlerContext, MethodImpl } from "@connectrpc/connect";
import { methodPolicies, type MethodPolicy } from "../../gen/svc/v1/methods.ts";
import type { SvcError } from "../errors.ts";
import { FairTurns } from "../lib/fair-turns.ts";
import { checkAccess, methodName } from "./access.ts";
import { collectCapabilities, type BoundService, type Handler, type MethodEntry } from "./bound-service.ts";
import type { Call } from "./call-context.ts";
import { defaultCallLimits, type CallLimits } from "./call-limits.ts";
import { CallNotes, type CallNotesOptions, type NotedCaller } from "./call-notes.ts";
import { connectErrorOf } from "./connect-errors.ts";
import { handOver, watchRefusals } from "./connect-refusals.ts";
import { isSvcError } from "./error-mapping.ts";
import { Invoker } from "./invoker.ts";
import { MethodIndex } from "./method-index.ts";
import { RunningCalls } from "./running-calls.ts";
import { requestIdKey, userOf, type UserContext } from "./user-context.ts";

export interface PipelineOptions extends CallNotesOptions {
  readonly services: readonly BoundService[];
  /** Ends all running calls; abort it with the error that they should end with. */
  readonly shutdownSignal?: AbortSignal | undefined;
  /** Policies of the methods by full name. Default: the contract's. A method without one is refused at creation. */
  readonly policies?: Readonly<Record<string, MethodPolicy>> | undefined;
  /** Of one user. */
  readonly limits?: CallLimits | undefined;
  /** In which users' work is done. Default: turns of its own. */
  readonly turns?: FairTurns | undefined;
  /** For messages with a `google.protobuf.Any`, of which the contract has none. */
  readonly jsonOptions?: JsonOptions | undefined;
}

type JsonOptions = Partial<JsonReadOptions & JsonWriteOptions>;

export interface Pipeline {
  /** In which the transports, too, do users' work. */
  readonly turns: FairTurns;
  /** Calls that have not ended. */
  readonly callsInFlight: number;
  /** How Connect's JSON is read and written, besides what is usual. */
  readonly jsonOptions: JsonOptions | undefined;
  /** Sorted capability strings of the methods that are implemented (S 9). */
  readonly capabilities: readonly string[];
  /** Registers a method on a Connect router; by default every one. */
  readonly routes: (router: ConnectRouter, only?: DescMethod) => void;
  /** The method of a Connect or gRPC path, such as `/svc.v1.AppService/ListApps`. */
  methodAt(path: string): DescMethod | undefined;
  /** Whether a Connect or gRPC path is a method that answers without an identity: the health service's (D8). */
  isPublic(path: string): boolean;
  /** Ends the streams that only watch (`NO_SIDE_EFFECTS`) and the conversations, so that nobody waits for them when the daemon stops. */
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
  /** Calls a method that takes and answers streams; the first message is validated. */
  invokeBidiStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    requests: AsyncIterable<MessageShape<I>>,
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
  const { services } = options;
  const notes = new CallNotes(options);
  const methods = new MethodIndex(services, options.policies ?? methodPolicies);
  const turns = options.turns ?? new FairTurns();
  const running = new RunningCalls(options.limits ?? defaultCallLimits, options.shutdownSignal);
  const invoker = new Invoker(running, notes, turns);

  function entryOf(method: DescMethod): MethodEntry {
    const entry = methods.entryOf(method);
    if (entry === undefined) throw new Error(`no handler for ${methodName(method)}`);
    return entry;
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

  const { jsonOptions } = options;
  return {
    turns,
    jsonOptions,

    get callsInFlight() {
      return running.size;
    },

    capabilities: collectCapabilities(services, options.policies),

    routes(router, only) {
      const registered = only === undefined ? services.flatMap(({ service }) => service.methods) : [only];
      for (const method of registered) {
        const handler = connectHandler(entryOf(method)) as MethodImpl<DescMethod>;
        router.rpc(method, handler, jsonOptions && { jsonOptions });
      }
    },

    requestGate(context) {
      const { method, protocolName, values } = context;
      const caller = { user: userOf(context), requestId: values.get(requestIdKey), protocolName };
      try {
        gate(method, caller.user, caller.requestId, protocolName);
        watchRefusals(context, (error) => notes.answered(entryOf(method), caller, error));
      } catch (error) {
        throw isSvcError(error) ? connectErrorOf(error, protocolName) : error;
      }
    },

    gate,

    noteAnswer(method, caller, error) {
      notes.answered(method === undefined ? undefined : methods.entryOf(method), caller, error);
    },

    methodAt: (path) => methods.at(path),

    isPublic(path) {
      const method = methods.at(path);
      return method !== undefined && entryOf(method).isPublic;
    },

    endCalls: (reason) => running.abort(reason),

    endStreams(reason) {
      running.abort(
        reason,
        (method) =>
          method.methodKind === "bidi_streaming" ||
          (method.methodKind === "server_streaming" && !entryOf(method).isChanging),
      );
    },

    invokeUnary: (method, request, call) => invoker.single(entryOf(method), request, call) as Promise<never>,
    invokeServerStream: (method, request, call) =>
      invoker.many(entryOf(method), request, call) as AsyncIterable<never>,
    invokeBidiStream: (method, requests, call) =>
      invoker.many(entryOf(method), requests, call) as AsyncIterable<never>,
    invokeClientStream: (method, requests, call) =>
      invoker.single(entryOf(method), requests, call) as Promise<never>,
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
          return await invoker.single(entry, input as Message, callOf(context), context);
        } catch (error) {
          throw connectErrorOf(error as SvcError, context.protocolName);
        }
      };
    }
    return async function* (input, context) {
      try {
        yield* invoker.many(entry, input as Message, callOf(context), context);
      } catch (error) {
        throw connectErrorOf(error as SvcError, context.protocolName);
      }
    };
  }
}
