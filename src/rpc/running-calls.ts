/** The calls that have not ended, so that they can be ended. */
import type { DescMethod } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import { CallContext } from "./call-context.ts";
import type { Call } from "./call-context.ts";

export class RunningCalls {
  readonly #contexts = new Set<CallContext>();
  readonly #shutdownSignal: AbortSignal | undefined;

  /** @param shutdownSignal ends all of them, and whatever begins later */
  constructor(shutdownSignal?: AbortSignal) {
    this.#shutdownSignal = shutdownSignal;
    shutdownSignal?.addEventListener("abort", () => this.abort(shutdownSignal.reason));
  }

  get size(): number {
    return this.#contexts.size;
  }

  begin(method: DescMethod, call: Call, connect?: HandlerContext): CallContext {
    const context = new CallContext(method, call, connect);
    this.#contexts.add(context);
    if (this.#shutdownSignal?.aborted === true) context.abort(this.#shutdownSignal.reason);
    return context;
  }

  end(context: CallContext): void {
    this.#contexts.delete(context);
    context.end();
  }

  /** @param reason what they end with: an SvcError, or what an AbortSignal was aborted with */
  abort(reason: unknown, isChosen: (method: DescMethod) => boolean = () => true): void {
    for (const context of this.#contexts) if (isChosen(context.method)) context.abort(reason);
  }
}
