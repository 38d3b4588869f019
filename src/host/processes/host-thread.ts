/** Client of the thread that scans all processes. The thread starts with the first request and ends after some idle time. */
import { SvcError } from "../../errors.ts";
import { CoalescedRequests } from "../../lib/coalesced-requests.ts";
import { SetOnce } from "../../lib/set-once.ts";
import { TaskError, TaskThread } from "../../lib/task-thread.ts";
import type { HostAnswers, HostQuestion, KnownApps } from "./process-questions.ts";

export interface HostThreadOptions {
  /** The thread's entry point. */
  entry: URL;
}

/** Idle time after which the thread ends, because it uses several MiB. */
const idleMs = 60_000;
const answerMs = 20_000;

type Kind = keyof HostAnswers;

export class HostThread implements Disposable {
  /** Returns the current apps. */
  readonly #apps = new SetOnce<() => KnownApps>("the processes of apps");
  readonly #thread: TaskThread<HostQuestion, HostAnswers[Kind]>;
  readonly #requests = {
    processes: new CoalescedRequests(() => this.#ask("processes")),
    sockets: new CoalescedRequests(() => this.#ask("sockets")),
  };

  constructor({ entry }: HostThreadOptions) {
    // Each kind of request runs at most once at a time.
    const maxWaiting = Object.keys(this.#requests).length;
    this.#thread = new TaskThread({ url: entry, timeoutMs: answerMs, idleMs, maxWaiting });
  }

  /** Registers the source of the apps' processes. Call it before the first request. */
  attributeTo(apps: () => KnownApps): void {
    this.#apps.set(apps);
  }

  /**
   * Simultaneous callers share one response, which is never older than their request.
   * @throws SvcError `deadline_exceeded`, `internal`; the signal's reason
   */
  async ask<K extends Kind>(kind: K, signal: AbortSignal): Promise<HostAnswers[K]> {
    return (await this.#requests[kind].request(undefined, signal)) as HostAnswers[K];
  }

  async #ask(kind: Kind): Promise<HostAnswers[Kind]> {
    try {
      return await this.#thread.run(kind, { kind, ...this.#apps.get()() });
    } catch (cause) {
      const isLate = cause instanceof TaskError && cause.why === "too_slow";
      const reason = isLate ? "deadline_exceeded" : "internal";
      const within = isLate ? ` within ${answerMs / 1000} s` : "";
      throw new SvcError(reason, `the host's processes could not be read${within}`, { cause });
    }
  }

  [Symbol.dispose](): void {
    this.#thread[Symbol.dispose]();
  }
}
