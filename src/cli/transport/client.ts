/** What commands call: a daemon over its socket, or the same service layer in this process. */
import type { DescMessage, DescMethod, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { UnaryCall } from "./calls.ts";

export interface CallOptions {
  /** Aborting it ends the call: the daemon sees the client go away. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds that the call may take. Default: {@link defaultTimeoutMs} for `call`, none for `invoke`. */
  readonly timeoutMs?: number | undefined;
}

/** A method with its message types. */
export type Method<I extends DescMessage, O extends DescMessage> = DescMethod & {
  readonly input: I;
  readonly output: O;
};

/** Every method throws SvcError and nothing else; `unavailable` when the daemon cannot be reached. */
export interface Client extends AsyncDisposable {
  /** Whether what is started goes on when this process ends: a daemon does it. */
  outlives(): Promise<boolean>;
  /** Whether it answers now. */
  isThere(signal?: AbortSignal): Promise<boolean>;
  /** Calls a unary method in REST JSON, which is what `--json` prints and costs no protobuf. */
  call<Request, Response>(
    call: UnaryCall<Request, Response>,
    request: Request,
    options?: CallOptions,
  ): Promise<Response>;
  /** Calls a method of any kind with messages; a unary answer is a stream of one. Leaving the loop ends the call. */
  invoke<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    options?: CallOptions,
  ): AsyncIterable<MessageShape<O>>;
}

/** Messages of a call; a method that takes no stream gets the first. */
export type Requests<I extends DescMessage> =
  readonly MessageInitShape<I>[] | AsyncIterable<MessageInitShape<I>>;

/** Reads are short; what changes an app may build it, stop it with a long grace, or remove gigabytes. */
export const defaultTimeoutMs = { read: 60_000, change: 30 * 60_000 } as const;
