/** Tracks running calls, to abort them, and to limit them per user. */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import { SvcError } from "../../errors.ts";
import { Tally } from "../../lib/tally.ts";
import { CallContext, type Call } from "./call-context.ts";
import { RequestMemory } from "./request-memory.ts";
import { shareName, type UserContext } from "./user-context.ts";

export class RunningCalls {
  readonly #contexts = new Set<CallContext>();
  readonly #shutdownSignal: AbortSignal | undefined;
  readonly #limits: CallLimits;
  readonly #calls = new Tally<string>();
  readonly #streams = new Tally<string>();
  readonly #memory = new RequestMemory();
  readonly #holds = new Map<CallContext, Disposable>();

  /** @param shutdownSignal ends all calls, including later ones */
  constructor(limits: CallLimits, shutdownSignal?: AbortSignal) {
    this.#limits = limits;
    this.#shutdownSignal = shutdownSignal;
    shutdownSignal?.addEventListener("abort", () => this.abort(shutdownSignal.reason));
  }

  get size(): number {
    return this.#contexts.size;
  }

  begin(method: DescMethod, call: Call, connect?: HandlerContext): CallContext {
    const context = new CallContext(method, call, connect);
    this.#contexts.add(context);
    this.#talliesOf(method).change(shareName(call.user), 1);
    if (this.#shutdownSignal?.aborted === true) context.abort(this.#shutdownSignal.reason);
    return context;
  }

  /** @throws SvcError `too_many` if the caller exceeds the limit for this kind of call */
  checkBounds({ method, user }: CallContext): void {
    if (!isBound(user)) return;
    const isOne = isSingle(method);
    const max = isOne ? this.#limits.maxCallsPerUser : this.#limits.maxStreamsPerUser;
    if (this.#talliesOf(method).of(shareName(user)) <= max) return;
    const [what, setting] = isOne ? ["calls", "max_calls_per_user"] : ["streams", "max_streams_per_user"];
    const message = `too many concurrent ${what} of this user: the limit is ${max} ([api.limits] ${setting}); end one first`;
    throw new SvcError("too_many", message);
  }

  /** Counts the memory of a request until its call ends. @throws SvcError `too_many` */
  holdRequest(context: CallContext, request: Message): void {
    const hold = isBound(context.user) ? this.#memory.hold(context, request) : undefined;
    if (hold !== undefined) this.#holds.set(context, hold);
  }

  end(context: CallContext): void {
    if (!this.#contexts.delete(context)) return;
    this.#holds.get(context)?.[Symbol.dispose]();
    this.#holds.delete(context);
    this.#talliesOf(context.method).change(shareName(context.user), -1);
    context.end();
  }

  #talliesOf(method: DescMethod): Tally<string> {
    return isSingle(method) ? this.#calls : this.#streams;
  }

  /** @param reason an SvcError, or the reason of an AbortSignal */
  abort(reason: unknown, isChosen: (method: DescMethod) => boolean = () => true): void {
    for (const context of this.#contexts) if (isChosen(context.method)) context.abort(reason);
  }
}

function isSingle({ methodKind }: DescMethod): boolean {
  return methodKind === "unary" || methodKind === "client_streaming";
}

/** Whether a caller's calls are limited here; public methods have separate limits. */
export function isBound({ kind, peerUid }: UserContext): boolean {
  return kind !== "local" && kind !== "anonymous" && peerUid !== 0;
}

/** Limits per user: a uid, or a token. Root on the socket is not limited. */
export interface CallLimits {
  /** Concurrent calls with a single response. */
  readonly maxCallsPerUser: number;
  /** Concurrent streaming calls: logs, events, statistics. */
  readonly maxStreamsPerUser: number;
}

/** Silence after which a stream sends a keep-alive. Proxies close a silent response after 60 s by default. */
export const defaultStreamKeepAliveMs = 25_000;

export const defaultCallLimits: CallLimits = { maxCallsPerUser: 256, maxStreamsPerUser: 128 };
