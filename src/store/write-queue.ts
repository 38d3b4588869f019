/** The calling thread's end of the writer: queues writes, hands them over in batches, starts the thread at the first. */
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
} from "./messages.ts";
import { receivedError } from "./thread-errors.ts";

/**
 * A write that the state of the database refuses: a statement changed another number of rows than its `changes`, or met
 * a constraint. Nothing of the write was kept. The domain turns it into the error that it means (`app_busy`, …).
 */
export class StoreConflict extends Error {
  /** Which statement of the write, counted from 0. */
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
  /** How many writes are committed together at most. */
  batchLimit: number;
  /** Called after each batch in which something was committed, before its writers hear of it. */
  onCommit: () => void;
}

export class WriteQueue implements AsyncDisposable {
  readonly #options: WriteQueueOptions;
  #waiting: QueuedWrite[] = [];
  /** What the writer works on; empty when it is idle. */
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
   *
   * @throws SvcError resource_exhausted too_many when too many writes wait already
   */
  async push(request: WriteRequest): Promise<StatementResult[]> {
    const { limit } = this.#options;
    if (this.#pending >= (request.essential ? 2 * limit : limit)) {
      throw new SvcError(
        "too_many",
        `${this.#pending} writes wait for the disk and at most ${limit} may; try again later`,
      );
    }
    return await new Promise((resolve, reject) => {
      this.#waiting.push({ request, resolve, reject });
      this.#dispatchSoon();
    });
  }

  /** At the end of the current turn, so that writes which are made together are committed together. */
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
    // A write that has waited too long is the writer's to refuse: it knows what was begun.
    this.#inFlight = this.#waiting.splice(0, this.#options.batchLimit);
    const worker = (this.#worker ??= this.#startWorker());
    worker.ref();
    const requests = this.#inFlight.map(({ request }) => request);
    try {
      worker.postMessage({ kind: "batch", requests } satisfies WriterCommand);
    } catch (error) {
      this.#failInFlight(
        new SvcError("internal", "a write holds a value that has no copy", { cause: error }),
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
        new SvcError(
          "internal",
          "the store's writer ended in the middle of a write, which may have been kept or not",
          { cause },
        ),
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
      if (outcome === undefined) write.reject(new Error("the store's writer left a write unanswered"));
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

  /** Waits for the writes under way (each has its deadline) and ends the thread; nothing is pushed any more. */
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

/** When a write that may wait `timeoutMs` must have begun. */
export function deadlineIn(timeoutMs: number): number {
  return monotonicMs() + timeoutMs;
}

function failureError(failure: WriteFailure): Error {
  return failure.kind === "conflict"
    ? new StoreConflict(failure.statementIndex, failure.reason, failure.message)
    : receivedError(failure);
}
