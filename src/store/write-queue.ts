/** The calling thread's end of the writer: queues writes, sends them in batches, and starts the thread with the first one. */
import { Worker } from "node:worker_threads";
import { SvcError } from "../errors.ts";
import {
  monotonicMs,
  type ConflictReason,
  type StatementResult,
  type WorkerRole,
  type WriteFailure,
  type WriteRequest,
  type WriterCommand,
  type WriterReply,
  receivedError,
} from "./messages.ts";

/**
 * A write that the state of the database rejects: a statement changed another number of rows than its `changes`, or
 * violated a constraint. Nothing of the write was stored. The domain converts it into its own error (`app_busy`, …).
 */
export class StoreConflict extends Error {
  /** Index of the statement in the write. */
  readonly statementIndex: number;
  readonly reason: ConflictReason;

  constructor(statementIndex: number, reason: ConflictReason, message: string) {
    super(message);
    this.name = "StoreConflict";
    this.statementIndex = statementIndex;
    this.reason = reason;
  }
}

interface QueuedWrite {
  request: WriteRequest;
  resolve: (results: StatementResult[]) => void;
  reject: (error: Error) => void;
}

export interface WriteQueueOptions {
  /** The worker's entry point. */
  workerUrl: URL;
  /** The store's directory. */
  dir: string;
  /** How many writes may wait; essential ones may be twice as many. */
  limit: number;
  /** Maximum number of writes that are committed together. */
  batchLimit: number;
  /** Called after each batch that committed something, before its writes resolve. */
  onCommit: () => void;
}

export class WriteQueue implements AsyncDisposable {
  readonly #options: WriteQueueOptions;
  #waiting: QueuedWrite[] = [];
  /** The batch that the writer works on; empty if it is idle. */
  #inFlight: QueuedWrite[] = [];
  #worker: Worker | undefined;
  #dispatchQueued = false;
  #drained: (() => void) | undefined;

  constructor(options: WriteQueueOptions) {
    this.#options = options;
  }

  get #pending(): number {
    return this.#waiting.length + this.#inFlight.length;
  }

  /**
   * Resolves when the statements are durable.
   * @throws SvcError `too_many` if too many writes wait
   */
  async push(request: WriteRequest): Promise<StatementResult[]> {
    const { limit } = this.#options;
    if (this.#pending >= (request.essential ? 2 * limit : limit)) {
      throw new SvcError(
        "too_many",
        `${this.#pending} writes are waiting for the disk (limit ${limit}); try again later`,
      );
    }
    return await new Promise((resolve, reject) => {
      this.#waiting.push({ request, resolve, reject });
      this.#dispatchSoon();
    });
  }

  /** Runs at the end of the current turn of the event loop, so that writes made together are committed together. */
  #dispatchSoon(): void {
    if (this.#dispatchQueued) return;
    this.#dispatchQueued = true;
    queueMicrotask(() => {
      this.#dispatchQueued = false;
      this.#dispatch();
    });
  }

  #dispatch(): void {
    if (this.#inFlight.length > 0) return;
    if (this.#waiting.length === 0) {
      this.#drained?.();
      return;
    }
    // The writer rejects a write that has waited too long, because only it knows what was started.
    this.#inFlight = this.#waiting.splice(0, this.#options.batchLimit);
    const worker = (this.#worker ??= this.#startWorker());
    worker.ref();
    const requests = this.#inFlight.map(({ request }) => request);
    try {
      worker.postMessage({ kind: "batch", requests } satisfies WriterCommand);
    } catch (error) {
      this.#failInFlight(
        new SvcError("internal", "a write contains a value that cannot be sent to the writer", {
          cause: error,
        }),
      );
    }
  }

  #startWorker(): Worker {
    const workerData: WorkerRole = { role: "writer", dir: this.#options.dir };
    const worker = new Worker(this.#options.workerUrl, { name: "store-writer", workerData, env: {} });
    let cause: unknown;
    worker.on("message", ({ outcomes }: WriterReply) => {
      worker.unref();
      this.#settle(outcomes);
    });
    worker.on("error", (error) => {
      cause = error;
    });
    worker.on("exit", () => {
      this.#worker = undefined;
      this.#failInFlight(
        new SvcError("internal", "the store's writer exited during a write, which may or may not be stored", {
          cause,
        }),
      );
    });
    return worker;
  }

  #settle(outcomes: WriterReply["outcomes"]): void {
    const settled = this.#inFlight;
    this.#inFlight = [];
    if (outcomes.some((outcome) => "results" in outcome)) this.#options.onCommit();
    const postponed: QueuedWrite[] = [];
    for (const [index, write] of settled.entries()) {
      const outcome = outcomes[index];
      if (outcome === undefined) write.reject(new Error("the store's writer did not respond to a write"));
      else if ("results" in outcome) write.resolve(outcome.results);
      else if ("failure" in outcome) write.reject(failureError(outcome.failure));
      else postponed.push(write);
    }
    this.#waiting.unshift(...postponed);
    this.#dispatch();
  }

  #failInFlight(error: SvcError): void {
    const failed = this.#inFlight;
    this.#inFlight = [];
    for (const { reject } of failed) reject(error);
    this.#dispatch();
  }

  /** Waits for the writes in progress (each has its deadline) and stops the thread; nothing may be pushed afterwards. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#pending > 0) await new Promise<void>((resolve) => (this.#drained = resolve));
    const worker = this.#worker;
    if (worker === undefined) return;
    worker.ref();
    const ended = new Promise((resolve) => worker.once("exit", resolve));
    worker.postMessage({ kind: "close" } satisfies WriterCommand);
    await ended;
  }
}

/** The time by which a write with this `timeoutMs` must have started. */
export function deadlineIn(timeoutMs: number): number {
  return monotonicMs() + timeoutMs;
}

function failureError(failure: WriteFailure): Error {
  return failure.kind === "conflict"
    ? new StoreConflict(failure.statementIndex, failure.reason, failure.message)
    : receivedError(failure);
}
