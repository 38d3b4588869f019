/** Runs as they happen: one in the foreground, or all that start and end. */
import type { ScheduleRun } from "../../../gen/svc/v1/schedule_pb.ts";
import { notFound, SvcError } from "../../errors.ts";
import type { JobRunner } from "./job-runner.ts";
import { viewRun } from "../jobs/job-views.ts";
import type { Job, JobKey } from "../jobs/job.ts";
import type { RunLog } from "./run-log.ts";
import { runStops } from "./run-outcome.ts";
import type { Run } from "./run.ts";

/** As the contract's `RunScheduleEvent`. */
export interface ForegroundEvent {
  readonly started: boolean;
  readonly event: { case: "run"; value: ScheduleRun } | { case: "output"; value: Uint8Array<ArrayBuffer> };
}

/** Runs that wait for a slow reader; each may hold 128 KiB. */
const queueLimit = 256;

/**
 * Starts a run and yields it, its output as it comes, and the run as it ended. A run that goes already is yielded instead
 * and waited for, without its output. When the reader leaves or `signal` aborts, a run that was started here is canceled.
 *
 * @param onCancelFailure hears why that was not possible
 * @throws SvcError `not_found` when the job goes meanwhile, with its runs
 */
export async function* runInForeground(
  runner: JobRunner,
  runs: RunLog,
  job: Job,
  signal: AbortSignal,
  onCancelFailure: (error: unknown) => void,
): AsyncGenerator<ForegroundEvent> {
  const { started, run } = await runner.start(job, { trigger: "manual", attempt: 1 });
  const output = started ? runner.follow(run.id, signal) : undefined;
  let isOver = !started;
  try {
    yield { started, event: { case: "run", value: viewRun(run) } };
    for await (const piece of output ?? []) {
      yield { started, event: { case: "output", value: new Uint8Array(piece) } };
    }
    const ended = await runs.ended(run.id, signal);
    isOver = true;
    if (ended === undefined) throw notFound("schedule", job.id);
    yield { started, event: { case: "run", value: viewRun(ended) } };
  } finally {
    const why = isOfTheDaemon(signal) ? runStops.stopping : runStops.canceled;
    if (!isOver) runner.cancel(run.id, why).catch(onCancelFailure);
  }
}

/** Whether it is the daemon that ends, and not its reader that has left. */
function isOfTheDaemon({ reason }: AbortSignal): boolean {
  return reason instanceof SvcError && reason.code === "unavailable";
}

/** Each run that is wanted as it starts and as it ends, from the first `next` on. @throws the signal's reason; `too_many` */
export async function* followRuns(
  runs: RunLog,
  isWanted: (job: JobKey) => boolean,
  signal: AbortSignal,
): AsyncGenerator<ScheduleRun> {
  const queue: Run[] = [];
  const state = { isBehind: false, wake: Promise.withResolvers<undefined>() };
  const wake = (): void => state.wake.resolve(undefined);
  using _listening = runs.onChange((run) => {
    if (!isWanted(run.job)) return;
    if (queue.length < queueLimit) queue.push(run);
    else state.isBehind = true;
    wake();
  });
  signal.addEventListener("abort", wake, { once: true });
  try {
    for (;;) {
      signal.throwIfAborted();
      const run = queue.shift();
      if (run !== undefined) yield viewRun(run);
      else if (state.isBehind) throw tooSlow;
      else {
        await state.wake.promise;
        state.wake = Promise.withResolvers<undefined>();
      }
    }
  } finally {
    signal.removeEventListener("abort", wake);
  }
}

const tooSlow = new SvcError(
  "too_many",
  `the reader is more than ${queueLimit} runs behind; follow anew and read faster`,
);
