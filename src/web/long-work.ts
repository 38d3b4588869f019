/** Work that tells of its steps as it goes on, and may ask for a yes before it begins: an install, an upgrade, a backup. */
import { signal, type ReadonlySignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Progress } from "../../gen/svc/v1/app_pb.ts";
import type { Ambiguous, LicenseRequired } from "../../gen/svc/v1/error_pb.ts";
import { describeError, isCanceled, payloadOf } from "./api.ts";
import { texts } from "./texts.ts";

const mostSteps = 100;

/** What the daemon wants to know before it goes on. */
export type Question =
  | { readonly kind: "accept"; readonly of: LicenseRequired }
  | { readonly kind: "choose"; readonly of: Ambiguous };

/** What was said yes to: each for itself, and for one piece of work only. */
export interface Accepted {
  readonly licenseAck: boolean;
  readonly permissionsAck: boolean;
}

type Told<Result> = { case: "progress"; value: Progress } | { case: undefined; value?: undefined } | Result;

/** Begins the work, with what was accepted; what the stream ends with is its result. */
export type Begin<Result> = (
  accepted: Accepted,
  signal: AbortSignal,
) => AsyncIterable<{ event: Told<Result> }>;

const nothing: Accepted = { licenseAck: false, permissionsAck: false };

export class LongWork<Result extends { case: string; value: unknown }> {
  readonly #begin: Begin<Result>;
  readonly #onResult: (result: Result) => unknown;
  readonly #steps = signal<readonly Progress[]>([]);
  /** In order; the last one goes on, for as long as the work is busy. */
  readonly steps: ReadonlySignal<readonly Progress[]> = this.#steps;
  readonly #question = signal<Question | undefined>(undefined);
  readonly question: ReadonlySignal<Question | undefined> = this.#question;
  readonly #failure = signal("");
  /** Empty when nothing failed. */
  readonly failure: ReadonlySignal<string> = this.#failure;
  readonly #over = signal<AbortController | undefined>(undefined);
  #accepted = nothing;
  #isGone = false;

  constructor(begin: Begin<Result>, onResult: (result: Result) => unknown) {
    this.#begin = begin;
    this.#onResult = onResult;
  }

  get isBusy(): boolean {
    return this.#over.value !== undefined;
  }

  /** The daemon cancels what nobody waits for any more. */
  cancel(): void {
    this.#over.peek()?.abort();
  }

  /** Nobody looks at it any more: what goes on ends, and nothing begins after that. */
  leave(): void {
    this.#isGone = true;
    this.cancel();
  }

  /** One at a time: false, and it says so, while it goes on. */
  mayBegin(): boolean {
    if (this.#isGone) return false;
    if (this.#over.peek() === undefined) return true;
    this.#failure.value = texts.work.busy;
    return false;
  }

  async run(): Promise<void> {
    if (!this.mayBegin()) return;
    this.#accepted = nothing;
    await this.again();
  }

  /** With a yes to what was asked. */
  async accept({ licenses, permissions }: LicenseRequired): Promise<void> {
    this.#accepted = {
      licenseAck: this.#accepted.licenseAck || licenses.length > 0,
      permissionsAck: this.#accepted.permissionsAck || permissions.length > 0,
    };
    await this.again();
  }

  /** With what was accepted before. */
  async again(): Promise<void> {
    if (!this.mayBegin()) return;
    const over = new AbortController();
    this.#over.value = over;
    this.#question.value = undefined;
    this.#failure.value = "";
    this.#steps.value = [];
    try {
      for await (const { event } of this.#begin(this.#accepted, over.signal)) {
        if (event.case === "progress") this.#take(event.value as Progress);
        else if (event.case !== undefined) await this.#onResult(event as Result);
      }
    } catch (error) {
      const asked = questionOf(error);
      if (asked === undefined || isAnswered(asked, this.#accepted))
        this.#failure.value =
          over.signal.aborted && isCanceled(error) ? texts.work.cancelled : describeError(error);
      else this.#question.value = asked;
    } finally {
      this.#over.value = undefined;
      if (this.#failure.value === texts.work.busy) this.#failure.value = "";
    }
  }

  /** A step that only got further stays one. */
  #take(progress: Progress): void {
    const before = this.#steps.value;
    const last = before.at(-1);
    const isSame = last?.step === progress.step && (last.message === progress.message || isMeasured(last));
    this.#steps.value = [...(isSame ? before.slice(0, -1) : before), progress].slice(-mostSteps);
  }
}

/** For as long as the view is there that shows it: whoever leaves cancels it, and begins nothing any more. */
export function useLongWork<Result extends { case: string; value: unknown }>(
  begin: Begin<Result>,
  onResult: (result: Result) => unknown,
): LongWork<Result> {
  const latest = useRef({ begin, onResult });
  latest.current = { begin, onResult };
  const work = useMemo(
    () =>
      new LongWork<Result>(
        (accepted, signal) => latest.current.begin(accepted, signal),
        (result) => latest.current.onResult(result),
      ),
    [],
  );
  // As the view goes: other effects end once the browser has painted, which an answer does not wait for.
  useLayoutEffect(() => () => work.leave(), [work]);
  return work;
}

/** It is known how much there is to do. */
export function isMeasured({ doneBytes, totalBytes }: Progress): boolean {
  return doneBytes !== undefined && totalBytes !== undefined && totalBytes > 0n;
}

function questionOf(error: unknown): Question | undefined {
  const payload = payloadOf(error);
  if (payload?.case === "licenseRequired") return { kind: "accept", of: payload.value };
  return payload?.case === "ambiguous" ? { kind: "choose", of: payload.value } : undefined;
}

/** What was accepted and is asked for all the same would be asked for again and again. */
function isAnswered(question: Question, { licenseAck, permissionsAck }: Accepted): boolean {
  if (question.kind === "choose") return false;
  const { licenses, permissions } = question.of;
  return (licenses.length === 0 || licenseAck) && (permissions.length === 0 || permissionsAck);
}
