/**
 * A thread that does one task after the other, those of several names in turns. It is ended when a task takes too long, and
 * when there is none for a while; the next task starts it again.
 */
import { Worker } from "node:worker_threads";

export interface TaskThreadOptions {
  /** Answers each message with one. */
  readonly url: URL;
  /** For one task; the start of the thread has as long again. */
  readonly timeoutMs: number;
  readonly idleMs: number;
  /** Tasks that wait. */
  readonly maxWaiting: number;
}

/** Why a task has no result. */
export class TaskError extends Error {
  readonly why: "too_slow" | "too_many" | "broken";

  constructor(why: TaskError["why"], cause?: unknown) {
    super(`the task was ${why}`, { cause });
    this.why = why;
  }
}

interface Waiting {
  readonly task: unknown;
  readonly transfer: readonly ArrayBuffer[];
  readonly resolve: (result: never) => void;
  readonly reject: (error: TaskError) => void;
}

export class TaskThread<Task, Result> implements Disposable {
  readonly #options: TaskThreadOptions;
  /** By name; whose turn is next comes first. */
  readonly #waiting = new Map<string, Waiting[]>();
  #count = 0;
  #worker: Worker | undefined;
  #isStarted = false;
  #current: Waiting | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: TaskThreadOptions) {
    this.#options = options;
  }

  /** @param transfer what of the task is the thread's from now on, instead of a copy. @throws TaskError */
  run(name: string, task: Task, transfer: readonly ArrayBuffer[] = []): Promise<Result> {
    if (this.#count >= this.#options.maxWaiting) return Promise.reject(new TaskError("too_many"));
    return new Promise((resolve, reject) => {
      const queue = this.#waiting.get(name) ?? [];
      this.#waiting.set(name, queue);
      queue.push({ task, transfer, resolve, reject });
      this.#count++;
      this.#next();
    });
  }

  [Symbol.dispose](): void {
    this.#end();
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
    const worker = (this.#worker ??= this.#start());
    worker.ref();
    const { timeoutMs } = this.#options;
    this.#timer = setTimeout(() => this.#fail("too_slow"), this.#isStarted ? timeoutMs : 2 * timeoutMs);
    worker.postMessage(current?.task, current?.transfer);
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
