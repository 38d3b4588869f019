/**
 * A thread that runs one task at a time, round-robin by name. The thread is terminated if a task takes too
 * long, or if there is none for a while; the next task starts it again. Task time is CPU time: on a busy host
 * the thread may have to wait for the CPU.
 */
import { Worker } from "node:worker_threads";
import { Limiter } from "./limiter.ts";

export interface TaskThreadOptions {
  /** The thread's entry point. It answers each message with one. */
  readonly url: URL;
  /** CPU time for one task; the start of the thread has as much again. */
  readonly timeoutMs: number;
  /** Total time for one task, including waiting for the CPU. Default: {@link patience} times `timeoutMs`. */
  readonly waitMs?: number;
  readonly idleMs: number;
  /** Waiting tasks of all names together. Beyond that, each name may have one. */
  readonly maxWaiting: number;
  /** Waiting tasks of one name. Default: {@link maxWaiting}. */
  readonly maxWaitingPerName?: number;
  /** A name, such as root's, with its own thread and its own {@link maxWaiting} waiting tasks. Default: none. */
  readonly reservedName?: string;
}

/** Total time of a task, as a multiple of its CPU time. */
const patience = 12;
/** Minimum milliseconds between two reads of the CPU time. */
const minPollMs = 20;

/** Why a task has no result. `starved`: the task did not get enough CPU time. */
export class TaskError extends Error {
  readonly why: "too_slow" | "starved" | "too_many" | "broken";

  constructor(why: TaskError["why"], cause?: unknown) {
    super(`the task was ${why}`, { cause });
    this.why = why;
  }
}

export interface RunOptions {
  /** Buffers of the task that move to the thread instead of being copied. */
  readonly transfer?: readonly ArrayBuffer[];
  /** Removes the task from the queue; a running task is finished. */
  readonly signal?: AbortSignal | undefined;
}

/** The caller that waits for the running task. */
interface Current {
  readonly resolve: (result: never) => void;
  readonly reject: (error: unknown) => void;
}

/** A running task. */
interface Running {
  readonly worker: Worker;
  readonly timeoutMs: number;
  /** As returned by `performance.now()`. */
  readonly giveUpAtMs: number;
  /** CPU time of the thread before the task; 0 while the thread starts. */
  readonly usedBeforeMs: Promise<number>;
}

export class TaskThread<Task, Result> implements Disposable {
  readonly #options: Omit<TaskThreadOptions, "reservedName">;
  /** Names with their own thread. */
  readonly #reserved = new Map<string, TaskThread<Task, Result>>();
  readonly #slots = new Limiter<string>({ total: 1, perKey: 1 });
  #worker: Worker | undefined;
  #isStarted = false;
  #current: Current | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor({ reservedName, ...options }: TaskThreadOptions) {
    this.#options = options;
    if (reservedName === undefined) return;
    this.#reserved.set(reservedName, new TaskThread({ ...options, maxWaitingPerName: options.maxWaiting }));
  }

  /** @throws TaskError; the signal's reason */
  async run(name: string, task: Task, options: RunOptions = {}): Promise<Result> {
    const thread = this.#reserved.get(name) ?? this;
    return thread.#run(name, task, options);
  }

  async #run(name: string, task: Task, { transfer = [], signal }: RunOptions): Promise<Result> {
    if (this.#isFull(name)) throw new TaskError("too_many");
    using _slot = await this.#slots.acquire(name, signal);
    clearTimeout(this.#timer);
    try {
      return await this.#execute(task, transfer);
    } finally {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#end(), this.#options.idleMs).unref();
      this.#worker?.unref();
    }
  }

  [Symbol.dispose](): void {
    for (const thread of this.#reserved.values()) thread[Symbol.dispose]();
    this.#end();
  }

  #isFull(name: string): boolean {
    const { maxWaiting, maxWaitingPerName = maxWaiting } = this.#options;
    const own = this.#slots.waitingOf(name);
    return own >= maxWaitingPerName || (own > 0 && this.#slots.waiting >= maxWaiting);
  }

  async #execute(task: Task, transfer: readonly ArrayBuffer[]): Promise<Result> {
    const { promise, resolve, reject } = Promise.withResolvers<Result>();
    const current: Current = { resolve, reject };
    this.#current = current;
    const worker = (this.#worker ??= this.#start());
    worker.ref();
    const timeoutMs = this.#isStarted ? this.#options.timeoutMs : 2 * this.#options.timeoutMs;
    const { waitMs = patience * timeoutMs } = this.#options;
    const usedBeforeMs = this.#isStarted ? usedMs(worker) : Promise.resolve(0);
    const running = { worker, timeoutMs, giveUpAtMs: performance.now() + waitMs, usedBeforeMs };
    this.#pollIn(timeoutMs, current, running);
    worker.postMessage(task, transfer);
    return promise;
  }

  #pollIn(delayMs: number, task: Current, running: Running): void {
    this.#timer = setTimeout(() => void this.#poll(task, running), Math.max(minPollMs, delayMs));
  }

  /** Terminates a task that has used up its CPU time, and waits further for one that has not. */
  async #poll(task: Current, running: Running): Promise<void> {
    const { worker, timeoutMs, giveUpAtMs, usedBeforeMs } = running;
    const isAtWork = (): boolean => worker === this.#worker && task === this.#current;
    // A thread that does not report its CPU time is not waited for.
    this.#timer = setTimeout(() => this.#fail("starved"), Math.max(0, giveUpAtMs - performance.now()));
    const leftMs = timeoutMs - ((await usedMs(worker)) - (await usedBeforeMs));
    if (!isAtWork()) return;
    clearTimeout(this.#timer);
    if (leftMs <= 0) this.#fail("too_slow");
    else this.#pollIn(Math.min(leftMs, giveUpAtMs - performance.now()), task, running);
  }

  #start(): Worker {
    const worker = new Worker(this.#options.url, { env: {} });
    worker.on("message", (result: unknown) => {
      if (worker !== this.#worker) return;
      this.#isStarted = true;
      const done = this.#current;
      this.#current = undefined;
      done?.resolve(result as never);
    });
    worker.on("error", (error) => {
      if (worker === this.#worker) this.#fail("broken", error);
    });
    return worker;
  }

  #fail(why: TaskError["why"], cause?: unknown): void {
    const failed = this.#current;
    this.#current = undefined;
    this.#end();
    failed?.reject(new TaskError(why, cause));
  }

  #end(): void {
    clearTimeout(this.#timer);
    const worker = this.#worker;
    this.#worker = undefined;
    this.#isStarted = false;
    void worker?.terminate();
  }
}

/** CPU time of a thread in milliseconds; 0 if it does not run yet, or no longer runs. */
async function usedMs(worker: Worker): Promise<number> {
  const { user, system } = await worker.cpuUsage().catch(() => ({ user: 0, system: 0 }));
  return (user + system) / 1000;
}
