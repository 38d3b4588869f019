/**
 * The daemon's side of the S3 thread. The thread starts with the first call, and exits some time after the
 * last, to free the memory of Amazon's client.
 */
import { Worker } from "node:worker_threads";
import { SvcError } from "../../errors.ts";
import type { S3Call, S3Operation, S3Operations, S3Connection, S3Question, S3Reply } from "./s3-calls.ts";

export interface S3CallOptions {
  signal?: AbortSignal | undefined;
  onProgress?: ((doneBytes: number) => void) | undefined;
}

interface PendingCall {
  onPiece: (bytes: Uint8Array) => void;
  onProgress: ((doneBytes: number) => void) | undefined;
  resolve: (result: unknown) => void;
  reject: (error?: Error) => void;
}

const defaultIdleMs = 10_000;

/** Prevents the client from reading configuration and credentials of the daemon's user. */
const environment = {
  AWS_CONFIG_FILE: "/dev/null",
  AWS_SHARED_CREDENTIALS_FILE: "/dev/null",
  AWS_EC2_METADATA_DISABLED: "true",
};

export class S3Thread implements AsyncDisposable {
  readonly #url: URL;
  readonly #idleMs: number;
  readonly #pending = new Map<number, PendingCall>();
  #worker: Worker | undefined;
  #idle: NodeJS.Timeout | undefined;
  #lastId = 0;

  constructor(url: URL, idleMs = defaultIdleMs) {
    this.#url = url;
    this.#idleMs = idleMs;
  }

  get isRunning(): boolean {
    return this.#worker !== undefined;
  }

  /** @throws SvcError as in s3-failure.ts */
  call<O extends S3Operation>(
    connection: S3Connection,
    operation: O,
    request: S3Operations[O]["request"],
    { signal, onProgress }: S3CallOptions = {},
  ): Promise<S3Operations[O]["result"]> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const pending = { onPiece: () => undefined, onProgress, resolve, reject };
    const id = this.#start(connection, { operation, request } as S3Call, pending, signal);
    return promise.finally(() => this.#end(id)) as Promise<S3Operations[O]["result"]>;
  }

  /** Yields the pieces of an object, as fast as they are consumed. */
  async *read(
    connection: S3Connection,
    request: S3Operations["read"]["request"],
    signal?: AbortSignal,
  ): AsyncGenerator<Buffer> {
    const pieces: Uint8Array[] = [];
    let [isDone, failure, wake] = [false, undefined as Error | undefined, (): void => undefined];
    const end = (error?: Error): void => {
      [isDone, failure] = [true, error];
      wake();
    };
    const pending = {
      onPiece: (bytes: Uint8Array) => {
        pieces.push(bytes);
        wake();
      },
      onProgress: undefined,
      resolve: () => end(),
      reject: end,
    };
    const id = this.#start(connection, { operation: "read", request }, pending, signal);
    try {
      for (;;) {
        const bytes = pieces.shift();
        if (bytes !== undefined) {
          this.#post({ kind: "ack", id });
          yield Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
        } else if (isDone) break;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
      if (failure !== undefined) throw failure;
    } finally {
      if (!isDone) this.#post({ kind: "cancel", id });
      this.#end(id);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stop(new SvcError("unavailable", "the daemon is stopping"));
  }

  #start(
    connection: S3Connection,
    call: S3Call,
    pending: PendingCall,
    signal: AbortSignal | undefined,
  ): number {
    const id = ++this.#lastId;
    clearTimeout(this.#idle);
    this.#worker ??= this.#startWorker();
    this.#worker.ref();
    const cancel = (): void => {
      this.#post({ kind: "cancel", id });
      pending.reject(canceled(signal));
    };
    signal?.addEventListener("abort", cancel, { once: true });
    const unlisten = (): void => signal?.removeEventListener("abort", cancel);
    this.#pending.set(id, {
      ...pending,
      resolve: (result) => {
        unlisten();
        pending.resolve(result);
      },
      reject: (error) => {
        unlisten();
        pending.reject(error);
      },
    });
    if (signal?.aborted === true) cancel();
    else this.#post({ kind: "call", id, connection, call });
    return id;
  }

  #end(id: number): void {
    this.#pending.delete(id);
    if (this.#pending.size > 0) return;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => void this.#stop(), this.#idleMs).unref();
    this.#worker?.unref();
  }

  #post(question: S3Question): void {
    this.#worker?.postMessage(question);
  }

  #startWorker(): Worker {
    const worker = new Worker(this.#url, { env: environment });
    worker.on("message", (reply: S3Reply) => {
      const pending = this.#pending.get(reply.id);
      if (reply.kind === "piece") pending?.onPiece(reply.bytes);
      else if (reply.kind === "progress") pending?.onProgress?.(reply.doneBytes);
      else if (reply.kind === "result") pending?.resolve(reply.result);
      else {
        const { reason, message } = reply.failure;
        pending?.reject(new SvcError(reason, message));
      }
    });
    worker.on("error", (error) => {
      if (worker === this.#worker) void this.#stop(error as Error);
    });
    return worker;
  }

  async #stop(why?: Error): Promise<void> {
    clearTimeout(this.#idle);
    const worker = this.#worker;
    this.#worker = undefined;
    for (const { reject } of this.#pending.values()) reject(why);
    this.#pending.clear();
    await worker?.terminate();
  }
}

function canceled(signal: AbortSignal | undefined): SvcError {
  const reason: unknown = signal?.reason;
  if (reason instanceof SvcError) return reason as SvcError;
  const isDeadline = reason instanceof Error && reason.name === "TimeoutError";
  return isDeadline
    ? new SvcError("deadline_exceeded", "the storage did not respond in time")
    : new SvcError("canceled", "the transfer was canceled");
}
