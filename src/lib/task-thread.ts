/**
 * A thread that does one task after the other, those of several names in turns. It is ended when a task takes too long, and
 * when there is none for a while; the next task starts it again. What a task takes is the processor's time: on a busy machine
 * the thread may have to wait for that much longer.
 */
import { Worker } from "node:worker_threads";

export interface TaskThreadOptions {
  /** Answers each message with one. */
  readonly url: URL;
  /** Of the processor's time, for one task; the start of the thread has as long again. */
  readonly timeoutMs: number;
  /** For one task that waits for the processor, or for anything else. Default: {@link patience} times as long. */
  readonly waitMs?: number;
  readonly idleMs: number;
  /** Tasks that wait. */
  readonly maxWaiting: number;
}

/** How many times as long as it computes a task may take in all. */
const patience = 12;
/** Between two looks at the processor's time. */
const leastLookMs = 20;

/** Why a task has no result; `starved` is not its own doing. */
export class TaskError extends Error {
  readonly why: "too_slow" | "starved" | "too_many" | "broken";

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

/** A task that is at work. */
interface Running {
  readonly worker: Worker;
  readonly timeoutMs: number;
  /** By `performance.now()`. */
  readonly giveUpAtMs: number;
  /** The processor's time of the thread before; 0 for one that is being started. */
  readonly usedBeforeMs: Promise<number>;
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
    const timeoutMs = this.#isStarted ? this.#options.timeoutMs : 2 * this.#options.timeoutMs;
    const { waitMs = patience * timeoutMs } = this.#options;
    const usedBeforeMs = this.#isStarted ? usedMs(worker) : Promise.resolve(0);
    const running = { worker, timeoutMs, giveUpAtMs: performance.now() + waitMs, usedBeforeMs };
    this.#lookIn(timeoutMs, current, running);
    worker.postMessage(current?.task, current?.transfer);
  }

  #lookIn(delayMs: number, task: Waiting | undefined, running: Running): void {
    this.#timer = setTimeout(() => void this.#look(task, running), Math.max(leastLookMs, delayMs));
  }

  /** Ends what has had its time of the processor, and waits for what had not. */
  async #look(task: Waiting | undefined, running: Running): Promise<void> {
    const { worker, timeoutMs, giveUpAtMs, usedBeforeMs } = running;
    const isAtWork = (): boolean => worker === this.#worker && task === this.#current;
    // A thread that does not even tell gets no answer to wait for.
    this.#timer = setTimeout(() => this.#fail("starved"), Math.max(0, giveUpAtMs - performance.now()));
    const leftMs = timeoutMs - ((await usedMs(worker)) - (await usedBeforeMs));
    if (!isAtWork()) return;
    clearTimeout(this.#timer);
    if (leftMs <= 0) this.#fail("too_slow");
    else this.#lookIn(Math.min(leftMs, giveUpAtMs - performance.now()), task, running);
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

/** The processor's time of a thread, milliseconds; 0 for one that does not run yet, or not any more. */
async function usedMs(worker: Worker): Promise<number> {
  const { user, system } = await worker.cpuUsage().catch(() => ({ user: 0, system: 0 }));
  return (user + system) / 1000;
}
