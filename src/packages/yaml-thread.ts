/**
 * Reads what strangers wrote in YAML where nobody waits for it and where it can be ended: in a thread of the kind in which
 * settings are held against their schema (T57).
 */
import { SvcError } from "../errors.ts";
import type { JsonValue } from "../lib/json.ts";
import { TaskError, TaskThread } from "../lib/task-thread.ts";
import type { ManifestText } from "./manifest-reader.ts";
import type { SettingsCheck, SettingsFinding } from "./settings-check.ts";
import type { IndexResult } from "./source-index.ts";
import type { Problem, YamlBounds } from "./yaml-document.ts";

export type YamlTask =
  | { readonly kind: "document"; readonly text: string; readonly bounds: YamlBounds }
  | { readonly kind: "manifest" | "index"; readonly text: string };

/** What was read, as JSON, which costs the asker less than a copy of the value. */
export type YamlAnswer = { readonly json: string } | { readonly problems: readonly Problem[] };

export type YamlReading = { readonly value: JsonValue } | { readonly problems: readonly Problem[] };

/** What the thread does, whoever asks for it. */
export type AuthorsThread = TaskThread<YamlTask | SettingsCheck, YamlAnswer | SettingsFinding>;

export interface YamlThreadOptions {
  /** The entry point of the thread. Default: the source. */
  threadUrl?: URL;
  /** How much of the processor's time one document may take. Default 5,000. */
  timeoutMs?: number;
  /** How long one may wait for it. Default: as {@link TaskThread} has it. */
  waitMs?: number;
}

/** For the thread to give its memory back. */
const idleMs = 30_000;
/** Documents that wait for the thread. */
const maxWaiting = 256;

/** All of its methods answer the problems instead of throwing, but for `too_many`, when too much waits, and `unavailable`. */
export class YamlThread implements Disposable {
  /** For settings, too: another thread takes as long to start as all else of an installation. */
  readonly tasks: AuthorsThread;
  readonly #timeoutMs: number;

  constructor(options: YamlThreadOptions = {}) {
    const {
      threadUrl = new URL("./settings-thread.ts", import.meta.url),
      timeoutMs = 5_000,
      ...waiting
    } = options;
    this.#timeoutMs = timeoutMs;
    this.tasks = new TaskThread({ url: threadUrl, timeoutMs, idleMs, maxWaiting, ...waiting });
  }

  /** One document. @param uid whose turn it is */
  async read(text: string, bounds: YamlBounds, uid: number): Promise<YamlReading> {
    const answer = await this.#ask(uid, { kind: "document", text, bounds });
    return "problems" in answer ? answer : { value: JSON.parse(answer.json) as JsonValue };
  }

  /** As `createManifestReader` does. @param uid whose turn it is */
  async manifest(text: string, uid: number): Promise<ManifestText> {
    const answer = await this.#ask(uid, { kind: "manifest", text });
    return "problems" in answer ? answer : (JSON.parse(answer.json) as ManifestText);
  }

  /** As `createIndexReader` does. @param uid whose turn it is */
  async index(text: string, uid: number): Promise<IndexResult> {
    const answer = await this.#ask(uid, { kind: "index", text });
    return "problems" in answer ? answer : (JSON.parse(answer.json) as IndexResult);
  }

  async #ask(uid: number, task: YamlTask): Promise<YamlAnswer> {
    try {
      return (await this.tasks.run(`uid ${uid}`, task)) as YamlAnswer;
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      if (error.why === "too_many")
        throw new SvcError(
          "too_many",
          `${maxWaiting} documents wait to be read already; try again in a moment`,
        );
      if (error.why === "starved")
        throw new SvcError("unavailable", "this machine has too much to do to read a document; try again");
      const message =
        error.why === "too_slow" ? `to read it takes more than ${this.#timeoutMs} ms` : "it takes too much";
      return { problems: [{ line: 1, message }] };
    }
  }

  [Symbol.dispose](): void {
    this.tasks[Symbol.dispose]();
  }
}
