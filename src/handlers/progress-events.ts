/** A streaming sibling: the progress of long work as events, its result as the last one. */
import type { OnProgress, Progress } from "../apps/progress.ts";

export interface ProgressEvent {
  event: { case: "progress"; value: Progress };
}

/** Lines that wait for a slow reader; older ones give way, as progress only matters while it is news. */
const queueLimit = 256;

/**
 * Runs `work` and yields what it reports while it runs.
 * A reader that leaves early does not end the work; its signal, which the work has, does that while it may.
 */
export async function* progressEvents<R, E>(
  work: (onProgress: OnProgress) => Promise<R>,
  resultEvent: (result: R) => E,
): AsyncGenerator<ProgressEvent | E> {
  const queue: Progress[] = [];
  let wake = Promise.withResolvers<void>();
  let isDone = false;
  const finished = work((progress) => {
    if (queue.length === queueLimit) queue.shift();
    queue.push(progress);
    wake.resolve();
  }).finally(() => {
    isDone = true;
    wake.resolve();
  });
  // Awaited below; until then a failure is not an unhandled one.
  finished.catch(() => undefined);
  for (;;) {
    const progress = queue.shift();
    if (progress !== undefined) {
      yield { event: { case: "progress", value: progress } };
    } else if (isDone) {
      break;
    } else {
      await wake.promise;
      wake = Promise.withResolvers<void>();
    }
  }
  yield resultEvent(await finished);
}
