/** The interface that commands call: a daemon over its socket, or the same service layer in this process. */
import type { DescMessage, DescMethod, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { UnaryCall } from "./calls.ts";

export interface CallOptions {
  /** Cancels the call; the daemon sees the client disconnect. */
  readonly signal?: AbortSignal | undefined;
  /** Time limit in milliseconds. Default: {@link defaultTimeoutMs} for `call`, none for `invoke`. */
  readonly timeoutMs?: number | undefined;
}

/** A method with its message types. */
export type Method<I extends DescMessage, O extends DescMessage> = DescMethod & {
  readonly input: I;
  readonly output: O;
};

/** Methods throw only SvcError; `unavailable` if the daemon cannot be reached. */
export interface Client extends AsyncDisposable {
  /** Whether started work continues after this process exits, because a daemon runs it. */
  outlives(): Promise<boolean>;
  /** Whether the other side responds now. */
  isAvailable(signal?: AbortSignal): Promise<boolean>;
  /** Calls a unary method in REST JSON, the format that `--json` prints. It does not load protobuf. */
  call<Request, Response>(
    call: UnaryCall<Request, Response>,
    request: Request,
    options?: CallOptions,
  ): Promise<Response>;
  /** Calls any method with messages; a unary response is a stream of one. Leaving the loop cancels the call. */
  invoke<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    options?: CallOptions,
  ): AsyncIterable<MessageShape<O>>;
}

/** Request messages of a call. A method that takes no stream gets the first one. */
export type Requests<I extends DescMessage> =
  readonly MessageInitShape<I>[] | AsyncIterable<MessageInitShape<I>>;

/** Reads are short. Changes may build an app, stop it with a long grace period, or delete gigabytes. */
export const defaultTimeoutMs = { read: 60_000, change: 30 * 60_000 } as const;
