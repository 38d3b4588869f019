/**
 * The one way from any transport to a handler: access level, validation, handler, error mapping, audit (D2, D8).
 * The transport has put identity and request id on the call before.
 */
import type {
  DescMessage,
  DescMethod,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageShape,
} from "@bufbuild/protobuf";
import type { ConnectRouter, HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type { MethodPolicy } from "../../gen/svc/v1/methods.ts";
import type { ErrorCode } from "../errors.ts";
import type { UserContext } from "./user-context.ts";

/** A service of the contract with the handlers that implement it. Make it with {@link implement}. */
export interface BoundService {
  readonly service: DescService;
  readonly impl: ServiceImpl<DescService>;
}

/** Ties handlers to their service; every method must be there, `unimplemented` included. */
export function implement<S extends DescService>(service: S, impl: ServiceImpl<S>): BoundService {
  return { service, impl: impl as ServiceImpl<DescService> };
}

/** What a transport outside of Connect says about a call. */
export interface Call {
  readonly user: UserContext;
  /** Shown in logs, audit records and internal errors. */
  readonly requestId: string;
  /** Such as `rest` or `in-memory`. */
  readonly protocolName: string;
  /** Aborts when the client goes away. The pipeline adds shutdown, deadline and the end of the token. */
  readonly signal?: AbortSignal;
  /** Milliseconds that the client gives the call. */
  readonly timeoutMs?: number;
}

/** One changing call, for the log and later the audit table. */
export interface AuditRecord {
  readonly requestId: string;
  /** Full name, such as `svc.v1.AppService/StartApp`. */
  readonly method: string;
  readonly protocolName: string;
  readonly user: UserContext;
  /** What the request names, such as an app's id; empty when nothing does. */
  readonly target: string;
  /** `ok` or the code of the error. */
  readonly result: "ok" | ErrorCode;
  /** The reason of the error. */
  readonly reason?: string;
  /** Milliseconds from the gate to the end of the handler. */
  readonly durationMs: number;
}

/** What the pipeline logs to; pino's logger fits. */
export interface PipelineLog {
  info(details: object, message: string): void;
  error(details: object, message: string): void;
}

export interface PipelineOptions {
  readonly services: readonly BoundService[];
  readonly log: PipelineLog;
  /** Takes one record for every changing call (those without `NO_SIDE_EFFECTS`), refused ones included. Must not throw. */
  readonly audit?: (record: AuditRecord) => void;
  /** Ends all running calls; abort it with the error that they should end with. */
  readonly shutdownSignal?: AbortSignal;
  /** Policies of the methods by full name. Default: the contract's. A method without one is refused at creation. */
  readonly policies?: Readonly<Record<string, MethodPolicy>>;
  /** Largest `timeoutMs` that a client may ask for. Default: one day. */
  readonly maxTimeoutMs?: number;
}

export interface Pipeline {
  /** Sorted capability strings of the methods that are implemented. */
  readonly capabilities: readonly string[];
  /** Registers every method on a Connect router. */
  readonly routes: (router: ConnectRouter) => void;
  /** For connect's `requestGate`: access is decided before a byte of the body is read. */
  readonly requestGate: (context: HandlerContext) => void;
  /**
   * Whether `user` may call `method`, before anything of the request's body is read.
   * @throws SvcError `permission_denied` with reason `token_denied` or `root_required`.
   */
  gate(method: DescMethod, user: UserContext, requestId?: string): void;
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

export declare function createPipeline(options: PipelineOptions): Pipeline;
