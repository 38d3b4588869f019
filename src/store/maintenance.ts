import { on } from "node:events";
import { Worker } from "node:worker_threads";
import { SvcError } from "../errors.ts";
import { type MaintenanceReply, type MaintenanceTask, type WorkerRole, receivedError } from "./messages.ts";

type Answer = Exclude<MaintenanceReply, { kind: "error" }>;

/** Runs tasks that read or write the whole database, each on its own short-lived thread. */
export class Maintenance {
  readonly #workerUrl: URL;
  readonly #dir: string;
  readonly #migrations: readonly string[];
  readonly #timeoutMs: number;

  /** @param timeoutMs time limit of a task */
  constructor(workerUrl: URL, dir: string, migrations: readonly string[], timeoutMs: number) {
    this.#workerUrl = workerUrl;
    this.#dir = dir;
    this.#migrations = migrations;
    this.#timeoutMs = timeoutMs;
  }

  /** @throws SvcError the error of the task; `deadline_exceeded` */
  async run(task: MaintenanceTask): Promise<Answer> {
    let last: Answer | undefined;
    // Waits for the end of the thread: its connections are closed then, so they cannot interfere with the caller's next
    // step.
    for await (const answer of this.answers(task)) last = answer;
    if (last === undefined) throw new Error(`the store's ${task.kind} ended without an answer`);
    return last;
  }

  /** Yields each answer as it arrives. @throws SvcError as {@link run} does */
  async *answers(task: MaintenanceTask): AsyncGenerator<Answer, undefined> {
    const workerData: WorkerRole = {
      role: "maintenance",
      dir: this.#dir,
      migrations: this.#migrations,
      task,
    };
    const worker = new Worker(this.#workerUrl, { name: `store-${task.kind}`, workerData, env: {} });
    try {
      const signal = AbortSignal.timeout(this.#timeoutMs);
      const replies = on(worker, "message", { signal, close: ["exit"] }) as AsyncIterable<[MaintenanceReply]>;
      for await (const [reply] of replies) {
        if (reply.kind === "error") throw receivedError(reply);
        yield reply;
      }
    } catch (error) {
      if (!(error instanceof Error) || error.name !== "AbortError") throw error;
      void worker.terminate();
      throw new SvcError(
        "deadline_exceeded",
        `the store's ${task.kind} did not end within ${this.#timeoutMs / 1_000} s; check whether its disk responds`,
        { cause: error },
      );
    }
    return undefined;
  }
}
