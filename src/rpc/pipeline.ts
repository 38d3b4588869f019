/**
 * The one way from any transport to a handler: access level, validation, handler, error mapping, audit (D2, D8).
 * The transport has identified the caller before.
 */
import type {
  DescMessage,
  DescMethod,
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
  /** Policies of the methods by full name. Default: the contract's. A method without one is refused. */
  readonly policies?: Readonly<Record<string, MethodPolicy>> | undefined;
  /** Of one user. */
  readonly limits?: CallLimits | undefined;
  /** In which users' work is done. Default: turns of its own. */
  readonly turns?: FairTurns | undefined;
  /** For messages with a `google.protobuf.Any`, of which the contract has none. */
  readonly jsonOptions?: JsonOptions | undefined;
}

type JsonOptions = Partial<JsonReadOptions & JsonWriteOptions>;

export type Pipeline = ReturnType<typeof createPipeline>;

/** A method with its message types. */
type Method<I extends DescMessage, O extends DescMessage> = DescMethod & {
  readonly input: I;
  readonly output: O;
};

/** What a method is called with: a message, or a stream of which the first is validated. */
type InputOf<I extends DescMessage> = MessageShape<I> | AsyncIterable<MessageShape<I>>;

/** Whatever asks for a method throws Error when one of its service has no handler or no policy. */
export function createPipeline(options: PipelineOptions) {
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

  /**
   * Whether `user` may call `method`, before anything of the request's body is read.
   * @throws SvcError `permission_denied` with reason `token_denied` or `root_required`.
   */
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
    /** In which the transports, too, do users' work. */
    turns,
    /** How Connect's JSON is read and written, besides what is usual. */
    jsonOptions,

    /** Calls that have not ended. */
    get callsInFlight(): number {
      return running.size;
    },

    /** Sorted capability strings of the methods that are implemented (S 9). */
    capabilities: collectCapabilities(services, options.policies),

    /** Registers a method on a Connect router; by default every one. */
    routes: (router: ConnectRouter, only?: DescMethod): void => {
      const registered = only === undefined ? services.flatMap(({ service }) => service.methods) : [only];
      for (const method of registered) {
        const handler = connectHandler(entryOf(method)) as MethodImpl<DescMethod>;
        router.rpc(method, handler, jsonOptions && { jsonOptions });
      }
    },

    /** For connect's `requestGate`: access is decided before a byte of the body is read. */
    requestGate: (context: HandlerContext): void => {
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

    /**
     * Notes a request that was answered without becoming a call: refused before, or a page.
     * @param method what it asked for; undefined when that is none of ours
     */
    noteAnswer(method: DescMethod | undefined, caller: NotedCaller, error?: SvcError): void {
      notes.answered(method === undefined ? undefined : methods.entryOf(method), caller, error);
    },

    /** The method of a Connect or gRPC path, such as `/svc.v1.AppService/ListApps`. */
    methodAt: (path: string): DescMethod | undefined => methods.at(path),

    /** Whether a Connect or gRPC path is a method that answers without an identity: the health service's (D8). */
    isPublic(path: string): boolean {
      const method = methods.at(path);
      return method !== undefined && entryOf(method).isPublic;
    },

    /** Ends all running calls. */
    endCalls: (reason: SvcError): void => running.abort(reason),

    /** Ends the streams that only watch (`NO_SIDE_EFFECTS`) and the conversations, so that nobody waits for them when the daemon stops. */
    endStreams(reason: SvcError): void {
      running.abort(
        reason,
        (method) =>
          method.methodKind === "bidi_streaming" ||
          (method.methodKind === "server_streaming" && !entryOf(method).isChanging),
      );
    },

    /** Calls a method that answers once. @throws SvcError and nothing else; so does the other. */
    invoke: <I extends DescMessage, O extends DescMessage>(
      method: Method<I, O>,
      input: InputOf<I>,
      call: Call,
    ) => invoker.single(entryOf(method), input, call) as Promise<MessageShape<O>>,

    /** Calls a method that streams its answer. Leaving the loop ends the handler. */
    invokeStream: <I extends DescMessage, O extends DescMessage>(
      method: Method<I, O>,
      input: InputOf<I>,
      call: Call,
    ) => invoker.many(entryOf(method), input, call) as AsyncIterable<MessageShape<O>>,
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
