/**
 * A thread that runs one task at a time, round-robin by name. The thread is terminated if a task takes too
 * long, or if there is none for a while; the next task starts it again. Task time is CPU time: on a busy host
 * the thread may have to wait for the CPU.
 */
import { Worker } from "node:worker_threads";

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

interface Waiting {
  readonly task: unknown;
  readonly transfer: readonly ArrayBuffer[];
  readonly resolve: (result: never) => void;
  readonly reject: (error: unknown) => void;
  /** Removes the listener of the caller's signal. */
  readonly ignoreSignal: () => void;
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
  /** By name; the next name comes first. */
  readonly #waiting = new Map<string, Waiting[]>();
  /** Waiting tasks of all names. */
  #count = 0;
  #worker: Worker | undefined;
  #isStarted = false;
  #current: Waiting | undefined;
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
    signal?.throwIfAborted();
    const queue = this.#waiting.get(name) ?? [];
    if (this.#isFull(queue)) throw new TaskError("too_many");
    const { promise, resolve, reject } = Promise.withResolvers<Result>();
    const leave = (): void => {
      queue.splice(queue.indexOf(waiting), 1);
      if (queue.length === 0) this.#waiting.delete(name);
      this.#count--;
      reject(signal?.reason);
    };
    const ignoreSignal = (): void => signal?.removeEventListener("abort", leave);
    const waiting: Waiting = { task, transfer, resolve, reject, ignoreSignal };
    signal?.addEventListener("abort", leave, { once: true });
    this.#waiting.set(name, queue);
    queue.push(waiting);
    this.#count++;
    this.#next();
    return promise;
  }

  [Symbol.dispose](): void {
    for (const thread of this.#reserved.values()) thread[Symbol.dispose]();
    this.#end();
  }

  #isFull({ length }: readonly Waiting[]): boolean {
    const { maxWaiting, maxWaitingPerName = maxWaiting } = this.#options;
    return length >= maxWaitingPerName || (this.#count >= maxWaiting && length > 0);
  }

  #next(): void {
    if (this.#current !== undefined) return;
    clearTimeout(this.#timer);
    const [first] = this.#waiting;
    if (first === undefined) {
      this.#timer = setTimeout(() => this.#end(), this.#options.idleMs).unref();
      this.#worker?.unref();
      return;
    }
    const [name, queue] = first;
    this.#waiting.delete(name);
    const current = queue.shift();
    this.#current = current;
    if (queue.length > 0) this.#waiting.set(name, queue);
    this.#count--;
    current?.ignoreSignal();
    const worker = (this.#worker ??= this.#start());
    worker.ref();
    const timeoutMs = this.#isStarted ? this.#options.timeoutMs : 2 * this.#options.timeoutMs;
    const { waitMs = patience * timeoutMs } = this.#options;
    const usedBeforeMs = this.#isStarted ? usedMs(worker) : Promise.resolve(0);
    const running = { worker, timeoutMs, giveUpAtMs: performance.now() + waitMs, usedBeforeMs };
    this.#pollIn(timeoutMs, current, running);
    worker.postMessage(current?.task, current?.transfer);
  }

  #pollIn(delayMs: number, task: Waiting | undefined, running: Running): void {
    this.#timer = setTimeout(() => void this.#poll(task, running), Math.max(minPollMs, delayMs));
  }

  /** Terminates a task that has used up its CPU time, and waits further for one that has not. */
  async #poll(task: Waiting | undefined, running: Running): Promise<void> {
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
      this.#next();
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
    this.#next();
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
