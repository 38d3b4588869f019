/** A thread of its own for what looks at every process: started with the first question, ended when none came for a while. */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { SvcError } from "../errors.ts";
import { SharedRounds } from "../lib/shared-rounds.ts";
import type { SampledRun } from "../runtimes/process/run-membership.ts";
import type { HostAnswers, HostQuestion, HostReply } from "./process-questions.ts";

export interface HostThreadOptions {
  /** Its entry point. */
  entry: URL;
  /** The runs of apps, as of now. */
  runs: () => readonly SampledRun[];
}

/** How long it waits for another question before it ends: it holds some MiB. */
const idleMs = 60_000;
const answerMs = 20_000;

export class HostThread implements AsyncDisposable {
  readonly #options: HostThreadOptions;
  readonly #rounds = {
    processes: new SharedRounds(() => this.#ask("processes")),
    sockets: new SharedRounds(() => this.#ask("sockets")),
  };
  #worker: Worker | undefined;
  #idle: NodeJS.Timeout | undefined;
  /** One question at a time. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: HostThreadOptions) {
    this.#options = options;
  }

  /**
   * However many ask at the same time, they share an answer, which is never from before they asked.
   * @throws SvcError `deadline_exceeded`, `internal`; the signal's reason
   */
  async ask<K extends keyof HostAnswers>(kind: K, signal: AbortSignal): Promise<HostAnswers[K]> {
    return (await this.#rounds[kind].join(undefined, signal)) as HostAnswers[K];
  }

  #ask(kind: keyof HostAnswers): Promise<unknown> {
    const answer = this.#last.then(() => this.#exchange({ kind, runs: this.#options.runs() }));
    this.#last = answer.catch(() => undefined);
    return answer;
  }

  async #exchange(question: HostQuestion): Promise<unknown> {
    clearTimeout(this.#idle);
    const worker = (this.#worker ??= this.#start());
    try {
      const replied = once(worker, "message", { signal: AbortSignal.timeout(answerMs) });
      worker.postMessage(question);
      const [reply] = (await replied) as [HostReply];
      if ("error" in reply) throw new Error(reply.error);
      return reply.answer;
    } catch (error) {
      // What it hangs or died of must not be met by the next question.
      if (!(error instanceof Error) || error.name === "AbortError") void this.#end();
      const isLate = error instanceof Error && error.name === "AbortError";
      const [code, why] = isLate
        ? ([
            "deadline_exceeded",
            `the host's processes could not be looked at within ${answerMs / 1000} s`,
          ] as const)
        : (["internal", "the host's processes could not be looked at"] as const);
      throw new SvcError(code, code, why, { cause: error });
    } finally {
      this.#idle = setTimeout(() => void this.#end(), idleMs).unref();
    }
  }

  #start(): Worker {
    const worker = new Worker(this.#options.entry, { name: "host", env: {} });
    worker.unref();
    // Who waits for an answer hears of it; without a listener it would end the daemon.
    worker.on("error", () => undefined);
    worker.once("exit", () => {
      if (this.#worker === worker) this.#worker = undefined;
    });
    return worker;
  }

  async #end(): Promise<void> {
    const worker = this.#worker;
    this.#worker = undefined;
    await worker?.terminate();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearTimeout(this.#idle);
    await this.#last;
    await this.#end();
  }
}
