/**
 * Parses untrusted YAML and applies ignore files in a thread that can be ended and blocks nobody; the same kind of thread
 * validates settings.
 */
import { SvcError } from "../../errors.ts";
import type { JsonValue } from "../../lib/json.ts";
import { TaskError, TaskThread } from "../../lib/task-thread.ts";
import type { EntryChoice } from "../build-context/chosen-entries.ts";
import type { ManifestText } from "./manifest-reader.ts";
import type { SettingsCheck, SettingsFinding } from "../settings/settings-check.ts";
import type { IndexResult } from "../sources/source-index.ts";
import type { Problem, YamlBounds } from "./yaml-document.ts";

export type YamlTask =
  | { readonly kind: "document"; readonly text: string; readonly bounds: YamlBounds }
  | { readonly kind: "manifest" | "index"; readonly text: string }
  | ({ readonly kind: "entries" } & EntryChoice);

interface Problems {
  readonly problems: readonly Problem[];
}

/** As JSON, which is cheaper for the caller than a copy of the value. */
interface PrintedValue {
  readonly json: string;
}

export interface ChosenEntries {
  readonly numbers: Uint32Array;
}

export type YamlAnswer = PrintedValue | ChosenEntries | Problems;

export type YamlReading = { readonly value: JsonValue } | Problems;

/** The tasks of the thread, for all callers. */
export type AuthorsThread = TaskThread<YamlTask | SettingsCheck, YamlAnswer | SettingsFinding>;

export interface YamlThreadOptions {
  /** Entry point of the thread. Default: the source. */
  threadUrl?: URL;
  /** CPU time per document. Default 5,000. */
  timeoutMs?: number;
  /** Longest wait for the thread. Default: that of {@link TaskThread}. */
  waitMs?: number;
}

/** Idle time before the thread ends and frees its memory. */
const idleMs = 30_000;
/** Limits of the threads that parse package authors' content: no user's tasks lock out root or other users. */
export const authorsBounds = { maxWaiting: 256, maxWaitingPerName: 16, reservedName: "uid 0" };

export const reachedLimit = `${authorsBounds.maxWaitingPerName} tasks of this user or ${authorsBounds.maxWaiting} of all users are waiting`;

/** Methods return problems instead of throwing, except for `too_many`, `unavailable` and the signal's reason. */
export class YamlThread implements Disposable {
  /** Shared with settings, because starting another thread takes as long as the rest of an install. */
  readonly tasks: AuthorsThread;
  readonly #timeoutMs: number;

  constructor(options: YamlThreadOptions = {}) {
    const {
      threadUrl = new URL("../settings/settings-thread.ts", import.meta.url),
      timeoutMs = 5_000,
      ...waiting
    } = options;
    this.#timeoutMs = timeoutMs;
    this.tasks = new TaskThread({ url: threadUrl, timeoutMs, idleMs, ...authorsBounds, ...waiting });
  }

  /** Parses one document. @param uid the user whose queue it waits in */
  async read(text: string, bounds: YamlBounds, uid: number, signal?: AbortSignal): Promise<YamlReading> {
    const answer = await this.#ask(uid, { kind: "document", text, bounds }, signal);
    return "problems" in answer ? answer : { value: JSON.parse(answer.json) as JsonValue };
  }

  /** Like `createManifestReader`. @param uid the user whose queue it waits in */
  async manifest(text: string, uid: number, signal?: AbortSignal): Promise<ManifestText> {
    const answer = await this.#ask(uid, { kind: "manifest", text }, signal);
    return "problems" in answer ? answer : (JSON.parse(answer.json) as ManifestText);
  }

  /** Like `createIndexReader`. @param uid the user whose queue it waits in */
  async index(text: string, uid: number, signal?: AbortSignal): Promise<IndexResult> {
    const answer = await this.#ask(uid, { kind: "index", text }, signal);
    return "problems" in answer ? answer : (JSON.parse(answer.json) as IndexResult);
  }

  /** Like `chooseEntries`. @param uid the user whose queue it waits in */
  async choose(choice: EntryChoice, uid: number, signal?: AbortSignal): Promise<ChosenEntries | Problems> {
    return this.#ask<ChosenEntries>(uid, { kind: "entries", ...choice }, signal);
  }

  async #ask<Answer = PrintedValue>(
    uid: number,
    task: YamlTask,
    signal?: AbortSignal,
  ): Promise<Answer | Problems> {
    try {
      return (await this.tasks.run(`uid ${uid}`, task, { signal })) as Answer | Problems;
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      if (error.why === "too_many")
        throw new SvcError("too_many", `cannot read a document: ${reachedLimit}; try again in a moment`);
      if (error.why === "starved")
        throw new SvcError("unavailable", "this host is too busy to read a document; try again");
      const message =
        error.why === "too_slow"
          ? `reading it takes more than ${this.#timeoutMs} ms`
          : "reading it takes too much memory";
      return { problems: [{ line: 1, message }] };
    }
  }

  [Symbol.dispose](): void {
    this.tasks[Symbol.dispose]();
  }
}
