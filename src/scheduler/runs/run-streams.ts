/** Live streams of runs: one in the foreground, or all starts and ends. */
import type { ScheduleRun } from "../../../gen/svc/v1/schedule_pb.ts";
import { SvcError } from "../../errors.ts";
import { viewRun } from "../jobs/job-views.ts";
import { jobNotFound, type Job, type JobKey } from "../jobs/job.ts";
import type { RunLog } from "./run-log.ts";
import { runStops } from "./run-outcome.ts";
import type { Runner } from "./runner.ts";
import type { Run } from "./run.ts";

/** Like the contract's `RunScheduleEvent`. */
export interface ForegroundEvent {
  readonly started: boolean;
  readonly event: { case: "run"; value: ScheduleRun } | { case: "output"; value: Uint8Array<ArrayBuffer> };
}

/** Maximum runs that wait for a slow reader; each may have 128 KiB. */
const queueLimit = 256;

/**
 * Starts a run, and yields it, its live output, and the ended run. If a run is already in progress, yields
 * that run without its output and waits for it. Leaving the loop or aborting `signal` cancels a run that was
 * started here.
 *
 * @param onCancelFailure called if canceling fails
 * @throws SvcError `not_found` if the job is removed during the run
 */
export async function* runInForeground(
  runner: Pick<Runner, "start" | "follow" | "cancel">,
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
    const ended = await runs.untilEnded(run.id, signal);
    isOver = true;
    if (ended === undefined) throw jobNotFound(job.id);
    yield { started, event: { case: "run", value: viewRun(ended) } };
  } finally {
    const why = isOfTheDaemon(signal) ? runStops.stopping : runStops.canceled;
    if (!isOver) runner.cancel(run.id, why).catch(onCancelFailure);
  }
}

/** Whether the daemon is stopping, rather than the reader leaving. */
function isOfTheDaemon({ reason }: AbortSignal): boolean {
  return reason instanceof SvcError && reason.code === "unavailable";
}

export interface FollowedRuns {
  readonly matches: (job: JobKey) => boolean;
  /** Yields starts and ends since then, unix milliseconds; undefined: from the first `next` on. */
  readonly sinceMs: number | undefined;
  readonly signal: AbortSignal;
}

/** Yields each selected run at its start and end. @throws the signal's reason; `too_many` */
export async function* followRuns(
  runs: RunLog,
  { matches, sinceMs, signal }: FollowedRuns,
): AsyncGenerator<ScheduleRun> {
  const queue: Run[] = [];
  const state = { isBehind: false, wake: Promise.withResolvers<undefined>() };
  const wake = (): void => state.wake.resolve(undefined);
  using _listening = runs.onChange((run) => {
    if (!matches(run.job)) return;
    if (queue.length < queueLimit) queue.push(run);
    else state.isBehind = true;
    wake();
  });
  signal.addEventListener("abort", wake, { once: true });
  // A concurrent write of another process may be both read and reported, so duplicates are dropped.
  const sent = new Set<string>();
  try {
    for (const { runId, hasEnded } of sinceMs === undefined ? [] : runs.since(sinceMs)) {
      signal.throwIfAborted();
      const run = runs.get(runId);
      if (run === undefined || !matches(run.job)) continue;
      const { outcome: _outcome, endedAtMs: _endedAtMs, ...started } = run;
      sent.add(changesOf(hasEnded ? run : started));
      yield viewRun(hasEnded ? run : started);
    }
    for (;;) {
      signal.throwIfAborted();
      const run = queue.shift();
      if (run !== undefined && !sent.delete(changesOf(run))) yield viewRun(run);
      else if (run !== undefined) continue;
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

function changesOf({ id, outcome }: Run): string {
  return `${id} ${outcome === undefined ? "started" : "ended"}`;
}

const tooSlow = new SvcError(
  "too_many",
  `the reader is more than ${queueLimit} runs behind; follow again and read faster`,
);
