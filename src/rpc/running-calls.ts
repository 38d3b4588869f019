/** The calls that have not ended, so that they can be ended, and so that one user has only so many of them (D38). */
import type { DescMethod } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import { SvcError } from "../errors.ts";
import { Tally } from "../lib/tally.ts";
import { CallContext, type Call } from "./call-context.ts";
import type { CallLimits } from "./call-limits.ts";
import { shareName } from "./user-context.ts";

export class RunningCalls {
  readonly #contexts = new Set<CallContext>();
  readonly #shutdownSignal: AbortSignal | undefined;
  readonly #limits: CallLimits;
  readonly #calls = new Tally<string>();
  readonly #streams = new Tally<string>();

  /** @param shutdownSignal ends all of them, and whatever begins later */
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

  /** @throws SvcError `too_many` when the caller of this call has more of its kind than one user may have */
  checkBounds({ method, user }: CallContext): void {
    // What is open to everybody has bounds of its own: nobody is to use up all others'.
    if (user.kind === "local" || user.kind === "anonymous" || user.peerUid === 0) return;
    const isOne = isSingle(method);
    const max = isOne ? this.#limits.maxCallsPerUser : this.#limits.maxStreamsPerUser;
    if (this.#talliesOf(method).of(shareName(user)) <= max) return;
    const [what, setting] = isOne ? ["calls", "max_calls_per_user"] : ["streams", "max_streams_per_user"];
    const message = `more than ${max} ${what} of one user at once ([api.limits] ${setting}); end one first`;
    throw new SvcError("too_many", message);
  }

  end(context: CallContext): void {
    if (!this.#contexts.delete(context)) return;
    this.#talliesOf(context.method).change(shareName(context.user), -1);
    context.end();
  }

  #talliesOf(method: DescMethod): Tally<string> {
    return isSingle(method) ? this.#calls : this.#streams;
  }

  /** @param reason what they end with: an SvcError, or what an AbortSignal was aborted with */
  abort(reason: unknown, isChosen: (method: DescMethod) => boolean = () => true): void {
    for (const context of this.#contexts) if (isChosen(context.method)) context.abort(reason);
  }
}

function isSingle({ methodKind }: DescMethod): boolean {
  return methodKind === "unary" || methodKind === "client_streaming";
}
