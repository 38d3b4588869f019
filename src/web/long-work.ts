/**
 * An operation that the daemon runs and this page follows, such as an install, an upgrade or a backup. It may
 * require consent first.
 */
import { signal, type ReadonlySignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { Ambiguous, LicenseRequired } from "../../gen/svc/v1/error_pb.ts";
import type { Operation } from "../../gen/svc/v1/operation_pb.ts";
import { describeError, isCanceled, payloadOf } from "./api.ts";
import type { Operations, Step, TimedStep } from "./operations.ts";
import { texts } from "./texts.ts";

const maxSteps = 100;

/** A question of the daemon before it continues. */
export type Question =
  | { readonly kind: "accept"; readonly of: LicenseRequired }
  | { readonly kind: "choose"; readonly of: Ambiguous };

/** The user's consents, each separate and valid for one operation. */
export interface Accepted {
  readonly licenseAck: boolean;
  readonly permissionsAck: boolean;
}

/** Starts the work with the given consents, and returns its operation. */
export type StartWork = (
  accepted: Accepted,
  signal: AbortSignal,
) => Promise<{ readonly detached?: Operation | undefined }>;

const nothing: Accepted = { licenseAck: false, permissionsAck: false };

export class LongWork<S extends DescMessage = DescMessage> {
  readonly #operations: Operations;
  readonly #schema: S;
  readonly #start: StartWork;
  readonly #onResult: (result: MessageShape<S>) => unknown;
  readonly #steps = signal<readonly TimedStep[]>([]);
  /** In order; the last one is current while the work is busy. */
  readonly steps: ReadonlySignal<readonly TimedStep[]> = this.#steps;
  readonly #question = signal<Question | undefined>(undefined);
  readonly question: ReadonlySignal<Question | undefined> = this.#question;
  readonly #failure = signal("");
  /** Empty if nothing failed. */
  readonly failure: ReadonlySignal<string> = this.#failure;
  readonly #over = signal<AbortController | undefined>(undefined);
  #accepted = nothing;
  #isGone = false;
  /** ID of the followed operation; empty for none. */
  #operationId = "";

  /** @param schema what the method returns */
  constructor(
    operations: Operations,
    schema: S,
    begin: StartWork,
    onResult: (result: MessageShape<S>) => unknown,
  ) {
    this.#operations = operations;
    this.#schema = schema;
    this.#start = begin;
    this.#onResult = onResult;
  }

  get isBusy(): boolean {
    return this.#over.value !== undefined;
  }

  /** Cancels the work itself. */
  async cancel(): Promise<void> {
    if (this.#operationId === "") this.#over.peek()?.abort();
    else await this.#operations.cancel(this.#operationId);
  }

  /** Stops following; the daemon continues the work. No work can be started afterwards. */
  leave(): void {
    this.#isGone = true;
    this.#over.peek()?.abort();
  }

  /** Whether work may start. While other work runs, returns false and sets the failure message. */
  mayStart(): boolean {
    if (this.#isGone) return false;
    if (this.#over.peek() === undefined) return true;
    this.#failure.value = texts.work.busy;
    return false;
  }

  async run(): Promise<void> {
    if (!this.mayStart()) return;
    this.#accepted = nothing;
    await this.runAgain();
  }

  /** Runs again with the requested consents. */
  async accept({ licenses, permissions }: LicenseRequired): Promise<void> {
    this.#accepted = {
      licenseAck: this.#accepted.licenseAck || licenses.length > 0,
      permissionsAck: this.#accepted.permissionsAck || permissions.length > 0,
    };
    await this.runAgain();
  }

  /** Runs again with the earlier consents. */
  async runAgain(): Promise<void> {
    if (!this.mayStart()) return;
    const over = new AbortController();
    this.#over.value = over;
    this.#question.value = undefined;
    this.#failure.value = "";
    this.#steps.value = [];
    try {
      const response = await this.#start(this.#accepted, over.signal);
      this.#operationId = response.detached?.id ?? "";
      const take = (step: Step): void => this.#take(step);
      const result = await this.#operations.finish(response, this.#schema, over.signal, take);
      await this.#onResult(result);
    } catch (error) {
      const asked = questionOf(error);
      if (asked === undefined || isAnswered(asked, this.#accepted))
        this.#failure.value = isCanceled(error) ? texts.work.cancelled : describeError(error);
      else this.#question.value = asked;
    } finally {
      this.#operationId = "";
      this.#over.value = undefined;
      if (this.#failure.value === texts.work.busy) this.#failure.value = "";
    }
  }

  /** Further progress of the same step replaces its entry. */
  #take(progress: Step): void {
    const before = this.#steps.value;
    const last = before.at(-1);
    const isSame = last?.step === progress.step && (last.message === progress.message || isMeasured(last));
    const taken = { ...progress, atMs: isSame ? last.atMs : Date.now() };
    this.#steps.value = [...(isSame ? before.slice(0, -1) : before), taken].slice(-maxSteps);
  }
}

/** Follows work while its view is mounted. */
export function useLongWork<S extends DescMessage>(
  operations: Operations,
  schema: S,
  begin: StartWork,
  onResult: (result: MessageShape<S>) => unknown,
): LongWork<S> {
  const latest = useRef({ begin, onResult });
  latest.current = { begin, onResult };
  const work = useMemo(
    () =>
      new LongWork(
        operations,
        schema,
        (accepted, signal) => latest.current.begin(accepted, signal),
        (result) => latest.current.onResult(result),
      ),
    [],
  );
  // A layout effect: other effects are cleaned up only after painting, when a response may already have
  // arrived.
  useLayoutEffect(() => () => work.leave(), [work]);
  return work;
}

/** Whether the total amount is known. */
export function isMeasured({ doneBytes, totalBytes }: Step): boolean {
  return doneBytes !== undefined && totalBytes !== undefined && totalBytes > 0n;
}

function questionOf(error: unknown): Question | undefined {
  const payload = payloadOf(error);
  if (payload?.case === "licenseRequired") return { kind: "accept", of: payload.value };
  return payload?.case === "ambiguous" ? { kind: "choose", of: payload.value } : undefined;
}

/** If the daemon still requires what was accepted, asking again would loop. */
function isAnswered(question: Question, { licenseAck, permissionsAck }: Accepted): boolean {
  if (question.kind === "choose") return false;
  const { licenses, permissions } = question.of;
  return (licenses.length === 0 || licenseAck) && (permissions.length === 0 || permissionsAck);
}
