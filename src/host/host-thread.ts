/** Asks the thread that looks at every process: started with the first question, ended when none came for a while. */
import { SvcError } from "../errors.ts";
import { SharedRounds } from "../lib/shared-rounds.ts";
import { TaskError, TaskThread } from "../lib/task-thread.ts";
import type { HostAnswers, HostQuestion, KnownApps } from "./process-questions.ts";

export interface HostThreadOptions {
  /** Its entry point. */
  entry: URL;
  /** As of now. */
  apps: () => KnownApps;
}

/** How long it waits for another question before it ends: it holds some MiB. */
const idleMs = 60_000;
const answerMs = 20_000;

type Kind = keyof HostAnswers;

export class HostThread implements Disposable {
  readonly #options: HostThreadOptions;
  readonly #thread: TaskThread<HostQuestion, HostAnswers[Kind]>;
  readonly #rounds = {
    processes: new SharedRounds(() => this.#ask("processes")),
    sockets: new SharedRounds(() => this.#ask("sockets")),
  };

  constructor(options: HostThreadOptions) {
    this.#options = options;
    // Each kind has one round under way at most.
    const maxWaiting = Object.keys(this.#rounds).length;
    this.#thread = new TaskThread({ url: options.entry, timeoutMs: answerMs, idleMs, maxWaiting });
  }

  /**
   * However many ask at the same time, they share an answer, which is never from before they asked.
   * @throws SvcError `deadline_exceeded`, `internal`; the signal's reason
   */
  async ask<K extends Kind>(kind: K, signal: AbortSignal): Promise<HostAnswers[K]> {
    return (await this.#rounds[kind].join(undefined, signal)) as HostAnswers[K];
  }

  async #ask(kind: Kind): Promise<HostAnswers[Kind]> {
    try {
      return await this.#thread.run(kind, { kind, ...this.#options.apps() });
    } catch (cause) {
      const isLate = cause instanceof TaskError && cause.why === "too_slow";
      const reason = isLate ? "deadline_exceeded" : "internal";
      const within = isLate ? ` within ${answerMs / 1000} s` : "";
      throw new SvcError(reason, `the host's processes could not be looked at${within}`, { cause });
    }
  }

  [Symbol.dispose](): void {
    this.#thread[Symbol.dispose]();
  }
}
