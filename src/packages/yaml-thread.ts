/**
 * Reads long YAML of strangers where nobody waits for it and where it can be ended: in a thread of the kind in which settings
 * are held against their schema (T57).
 */
import { SvcError } from "../errors.ts";
import type { JsonValue } from "../lib/json.ts";
import { TaskError, TaskThread } from "../lib/task-thread.ts";
import type { Problem, YamlBounds } from "./yaml-document.ts";

export interface YamlTask {
  readonly text: string;
  readonly bounds: YamlBounds;
}

/** The value as JSON, which costs the reader less than a copy of the value. */
export type YamlAnswer = { readonly json: string } | { readonly problems: readonly Problem[] };

export type YamlReading = { readonly value: JsonValue } | { readonly problems: readonly Problem[] };

export interface YamlThreadOptions {
  /** The entry point of the thread. Default: the source. */
  threadUrl?: URL;
  /** How long one document may take, on a machine that may be busy. Default 5,000. */
  timeoutMs?: number;
}

/** For the thread to give its memory back. */
const idleMs = 30_000;
/** Documents that wait for the thread. */
const maxWaiting = 256;

export class YamlThread implements Disposable {
  readonly #thread: TaskThread<YamlTask, YamlAnswer>;
  readonly #timeoutMs: number;

  constructor(options: YamlThreadOptions = {}) {
    const { threadUrl = new URL("./settings-thread.ts", import.meta.url), timeoutMs = 5_000 } = options;
    this.#timeoutMs = timeoutMs;
    this.#thread = new TaskThread({ url: threadUrl, timeoutMs, idleMs, maxWaiting });
  }

  /**
   * Reads one document; answers the problems instead of throwing.
   * @param name whose turn it is
   * @throws SvcError `too_many` when too much waits
   */
  async read(name: string, text: string, bounds: YamlBounds): Promise<YamlReading> {
    try {
      const answer = await this.#thread.run(name, { text, bounds });
      return "problems" in answer ? answer : { value: JSON.parse(answer.json) as JsonValue };
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      if (error.why === "too_many")
        throw new SvcError(
          "too_many",
          `${maxWaiting} documents wait to be read already; try again in a moment`,
        );
      const message =
        error.why === "too_slow" ? `to read it takes more than ${this.#timeoutMs} ms` : "it takes too much";
      return { problems: [{ line: 1, message }] };
    }
  }

  [Symbol.dispose](): void {
    this.#thread[Symbol.dispose]();
  }
}
