/**
 * The path from any transport to a handler: access, validation, handler, error mapping, audit. The transport
 * has already identified the caller.
 */
import {
  create,
  type DescMessage,
  type DescMethod,
  type JsonReadOptions,
  type JsonWriteOptions,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";
import type { ConnectRouter, HandlerContext, MethodImpl } from "@connectrpc/connect";
import { methodPolicies, type MethodPolicy } from "../../../gen/svc/v1/methods.ts";
import type { SvcError } from "../../errors.ts";
import { keepAliveHeader } from "../../lib/keep-alive.ts";
import { FairQueue } from "../../lib/fair-queue.ts";
import { checkAccess, gatedCallerKey, methodName, type GatedCaller } from "./access.ts";
import { collectCapabilities, type BoundService, type Handler, type MethodEntry } from "./bound-service.ts";
import type { Call } from "./call-context.ts";
import {
  defaultCallLimits,
  defaultStreamKeepAliveMs,
  type CallLimits,
  RunningCalls,
} from "./running-calls.ts";
import { CallRecorder, type CallRecorderOptions, type RecordedCaller } from "./call-recorder.ts";
import { connectErrorOf } from "./connect/connect-errors.ts";
import { stopWatching, watchRejections } from "./connect/connect-rejections.ts";
import { isSvcError } from "./error-mapping.ts";
import { withKeepAlives } from "./keep-alive.ts";
import { Invoker } from "./invoker.ts";
import { MethodIndex } from "./method-index.ts";
import { requestIdKey, userOf } from "./user-context.ts";

export interface PipelineOptions extends CallRecorderOptions {
  readonly services: readonly BoundService[];
  /** Ends all running calls with its abort reason. */
  readonly shutdownSignal?: AbortSignal | undefined;
  /** Policies of the methods by full name. Default: the contract's. Methods without a policy are rejected. */
  readonly policies?: Readonly<Record<string, MethodPolicy>> | undefined;
  /** Limits per user. */
  readonly limits?: CallLimits | undefined;
  /** Silence after which a stream sends a keep-alive; over Connect and gRPC only to clients that ignore it. */
  readonly streamKeepAliveMs?: number | undefined;
  /** Schedules the work of users. Default: a separate queue. */
  readonly fairQueue?: FairQueue | undefined;
  /** For messages with a `google.protobuf.Any`; the contract has none. */
  readonly jsonOptions?: JsonOptions | undefined;
}

type JsonOptions = Partial<JsonReadOptions & JsonWriteOptions>;

export type Pipeline = ReturnType<typeof createPipeline>;

/** A method with its message types. */
type Method<I extends DescMessage, O extends DescMessage> = DescMethod & {
  readonly input: I;
  readonly output: O;
};

/** The input of a method: a message, or a stream whose first message is validated. */
type InputOf<I extends DescMessage> = MessageShape<I> | AsyncIterable<MessageShape<I>>;

/** Looking up a method throws Error if a method of its service has no handler or no policy. */
export function createPipeline(options: PipelineOptions) {
  const { services, streamKeepAliveMs = defaultStreamKeepAliveMs } = options;
  const recorder = new CallRecorder(options);
  const methods = new MethodIndex(services, options.policies ?? methodPolicies);
  const fairQueue = options.fairQueue ?? new FairQueue();
  const running = new RunningCalls(options.limits ?? defaultCallLimits, options.shutdownSignal);
  const invoker = new Invoker(running, recorder, fairQueue);

  function entryOf(method: DescMethod): MethodEntry {
    const entry = methods.entryOf(method);
    if (entry === undefined) throw new Error(`no handler for ${methodName(method)}`);
    return entry;
  }

  /**
   * Checks the caller's access to `method`, before the request's body is read.
   * @throws SvcError `permission_denied` with reason `token_denied` or `root_required`.
   */
  function gate(method: DescMethod, caller: GatedCaller, protocolName: string): void {
    if (caller.admittedTo === method) return;
    const entry = entryOf(method);
    const { user, requestId } = caller;
    try {
      checkAccess(method, entry.access, user);
    } catch (error) {
      recorder.recordRequest(entry, { user, requestId, protocolName }, error as SvcError);
      throw error;
    }
    caller.admittedTo = method;
  }

  const { jsonOptions } = options;
  return {
    /** Schedules the work of users; also used by the transports. */
    fairQueue,
    /** See {@link PipelineOptions}. */
    streamKeepAliveMs,
    /** Additional options for Connect's JSON. */
    jsonOptions,

    /** Calls that have not ended. */
    get callsInFlight(): number {
      return running.size;
    },

    /** Sorted capability strings of the implemented methods. */
    capabilities: collectCapabilities(services, options.policies),

    /** Registers one method, by default all, on a Connect router. */
    routes: (router: ConnectRouter, only?: DescMethod): void => {
      const registered = only === undefined ? services.flatMap(({ service }) => service.methods) : [only];
      for (const method of registered) {
        const handler = connectHandler(entryOf(method)) as MethodImpl<DescMethod>;
        router.rpc(method, handler, jsonOptions && { jsonOptions });
      }
    },

    /** For Connect's `requestGate`: checks access before the body is read. */
    requestGate: (context: HandlerContext): void => {
      const { method, protocolName, values } = context;
      const caller = { user: userOf(context), requestId: values.get(requestIdKey), protocolName };
      try {
        gate(method, values.get(gatedCallerKey) ?? caller, protocolName);
        watchRejections(context, (error) => recorder.recordRequest(entryOf(method), caller, error));
      } catch (error) {
        throw isSvcError(error) ? connectErrorOf(error, protocolName) : error;
      }
    },

    gate,

    /**
     * Records a request that did not become a call: an early rejection, or a page.
     * @param method the requested method; undefined if it is unknown
     */
    recordResponse(method: DescMethod | undefined, caller: RecordedCaller, error?: SvcError): void {
      recorder.recordRequest(method === undefined ? undefined : methods.entryOf(method), caller, error);
    },

    /** The method of a Connect or gRPC path, such as `/svc.v1.AppService/ListApps`. */
    methodAt: (path: string): DescMethod | undefined => methods.at(path),

    /** Whether a Connect or gRPC path is a method that needs no identity (the health service's). */
    isPublic(path: string): boolean {
      const method = methods.at(path);
      return method !== undefined && entryOf(method).isPublic;
    },

    /** Ends all running calls. */
    endCalls: (reason: SvcError): void => running.abort(reason),

    /**
     * Ends read-only streams (`NO_SIDE_EFFECTS`) and bidirectional streams, so that stopping the daemon does
     * not wait for them.
     */
    endStreams(reason: SvcError): void {
      running.abort(
        reason,
        (method) =>
          method.methodKind === "bidi_streaming" ||
          (method.methodKind === "server_streaming" && !entryOf(method).isChanging),
      );
    },

    /** Calls a method with a single response. Like {@link invokeStream}, throws only SvcError. */
    invoke: <I extends DescMessage, O extends DescMessage>(
      method: Method<I, O>,
      input: InputOf<I>,
      call: Call,
    ) => invoker.single(entryOf(method), input, call) as Promise<MessageShape<O>>,

    /** Calls a method with a stream of responses. Leaving the loop ends the handler. */
    invokeStream: <I extends DescMessage, O extends DescMessage>(
      method: Method<I, O>,
      input: InputOf<I>,
      call: Call,
    ) => invoker.many(entryOf(method), input, call) as AsyncIterable<MessageShape<O>>,
  };

  /** Connect calls handlers in two forms. */
  function connectHandler(entry: MethodEntry): Handler {
    const callOf = (context: HandlerContext): Call => {
      stopWatching(context);
      return {
        user: userOf(context),
        admittedTo: context.values.get(gatedCallerKey)?.admittedTo,
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
        const messages = invoker.many(entry, input as Message, callOf(context), context);
        yield* context.requestHeader.get(keepAliveHeader) === "1"
          ? withKeepAlives(messages, streamKeepAliveMs, () => create(entry.method.output))
          : messages;
      } catch (error) {
        throw connectErrorOf(error as SvcError, context.protocolName);
      }
    };
  }
}
