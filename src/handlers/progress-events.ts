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
  const state = { isDone: false, wake: Promise.withResolvers<undefined>() };
  const finished = work((progress) => {
    if (queue.length === queueLimit) queue.shift();
    queue.push(progress);
    state.wake.resolve(undefined);
  }).finally(() => {
    state.isDone = true;
    state.wake.resolve(undefined);
  });
  // Awaited below; until then a failure is not an unhandled one.
  finished.catch(() => undefined);
  for (;;) {
    const progress = queue.shift();
    if (progress !== undefined) {
      yield { event: { case: "progress", value: progress } };
    } else if (state.isDone) {
      break;
    } else {
      await state.wake.promise;
      state.wake = Promise.withResolvers<undefined>();
    }
  }
  yield resultEvent(await finished);
}
