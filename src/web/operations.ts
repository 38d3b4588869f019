/** Long work that the daemon runs: it continues whether or not this page shows it. */
import { fromJson, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type Client } from "@connectrpc/connect";
import { signal, type ReadonlySignal } from "@preact/signals";
import type { Progress } from "../../gen/svc/v1/app_pb.ts";
import { ErrorDetailSchema } from "../../gen/svc/v1/error_pb.ts";
import type { Operation, OperationService } from "../../gen/svc/v1/operation_pb.ts";
import { isDaemonError } from "./api.ts";

type OptionalField = "service" | "doneBytes" | "totalBytes" | "stepNumber" | "stepCount";

/** A report of progress. */
export type Step = Pick<Progress, "step" | "message"> & {
  readonly [Field in OptionalField]?: Progress[Field] | undefined;
};

/** Poll interval of running operations: events do not report their progress. */
const readEveryMs = 2_000;
/** Milliseconds before a broken stream is opened again. */
const retryMs = 1_000;

export class Operations {
  readonly #client: Client<typeof OperationService>;
  readonly #running = signal<readonly Operation[]>([]);
  /** Newest first. */
  readonly running: ReadonlySignal<readonly Operation[]> = this.#running;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(client: Client<typeof OperationService>) {
    this.#client = client;
  }

  /** Reads the running operations, repeatedly while there are any. */
  async read(signal: AbortSignal): Promise<void> {
    clearTimeout(this.#timer);
    try {
      this.#running.value = (await this.#client.listOperations({ state: "RUNNING" }, { signal })).operations;
    } catch {
      // The event stream detects when the daemon responds again, and causes a new read.
    }
    clearTimeout(this.#timer);
    if (signal.aborted || this.#running.value.length === 0) return;
    this.#timer = setTimeout(() => void this.read(signal), readEveryMs);
  }

  async cancel(id: string): Promise<void> {
    await this.#client.cancelOperation({ id });
  }

  /**
   * Follows an operation until it has finished, and reconnects if the connection breaks.
   * @returns its final state
   * @throws the reason of `signal`, the daemon's error
   */
  async follow(id: string, signal: AbortSignal, onStep: (step: Step) => void): Promise<Operation> {
    for (let after = 0; ;) {
      try {
        let last: Operation | undefined;
        for await (const { event } of this.#client.streamOperation({ id, after }, { signal })) {
          if (event.case === "line") {
            after = event.value.number;
            const { phase: step, text: message, stepNumber, stepCount, service } = event.value;
            onStep({ step, message, stepNumber, stepCount, service });
          } else if (event.case === "operation") {
            last = event.value;
            if (last.phase !== "") onStep(stepOf(last));
          }
        }
        if (last !== undefined && last.state !== "RUNNING") return last;
      } catch (error) {
        if (signal.aborted || isDaemonError(error)) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, retryMs));
      signal.throwIfAborted();
    }
  }

  /**
   * Resolves with the method's response when the operation has succeeded.
   * @throws ConnectError with the method's error
   */
  async finish<S extends DescMessage>(
    { detached }: { readonly detached?: Operation | undefined },
    schema: S,
    signal: AbortSignal,
    onStep: (step: Step) => void = () => undefined,
  ): Promise<MessageShape<S>> {
    const { id = "" } = detached ?? {};
    const { state, error, result } = await this.follow(id, signal, onStep);
    if (state === "SUCCEEDED") return fromJson(schema, result ?? {}, { ignoreUnknownFields: true });
    const code = state === "CANCELED" ? Code.Canceled : Code.Unknown;
    const details = error?.detail === undefined ? [] : [{ desc: ErrorDetailSchema, value: error.detail }];
    throw new ConnectError(error?.message ?? state, code, undefined, details);
  }
}

/** The current step of an operation. */
export function stepOf(operation: Operation): Step {
  const { phase: step, message, service, doneBytes, totalBytes, stepNumber, stepCount } = operation;
  return { step, message, service, doneBytes, totalBytes, stepNumber, stepCount };
}

export interface TimedStep extends Step {
  /** Arrival of its first report, in milliseconds since 1970. */
  readonly atMs: number;
}

export interface StepLineOf extends Step {
  /** Set on the last line of each step. The last step has it only while it runs, because its end is unknown. */
  readonly tookMs?: number | undefined;
}

/** The lines of an operation's progress, with the time that each step took. @param nowMs undefined once the work is finished */
export function stepLines(steps: readonly TimedStep[], nowMs: number | undefined): readonly StepLineOf[] {
  let sinceMs = 0;
  return steps.map((line, at) => {
    const next = steps[at + 1];
    if (steps[at - 1]?.step !== line.step) sinceMs = line.atMs;
    const endMs = next === undefined ? nowMs : next.step === line.step ? undefined : next.atMs;
    const tookMs = endMs === undefined ? undefined : endMs - sinceMs;
    return { ...line, tookMs };
  });
}
