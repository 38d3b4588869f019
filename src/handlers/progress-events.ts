/** A streaming sibling: the progress of long work as events, its result as the last one. */
import type { HandlerContext } from "@connectrpc/connect";
import type { OnProgress, Progress } from "../apps/progress.ts";

export interface ProgressEvent {
  event: { case: "progress"; value: Progress };
}

/** Lines that wait for a slow reader; older ones give way, as progress only matters while it is news. */
const queueLimit = 256;

/**
 * Runs `work` and yields what it reports while it runs, and last what it comes to.
 * A reader that leaves early does not end the work; its signal, which the work has, does that while it may.
 * @param last the case of the last event
 */
export async function* progressEvents<R, const Case extends string>(
  work: (onProgress: OnProgress) => Promise<R>,
  last: Case,
): AsyncGenerator<ProgressEvent | { event: { case: Case; value: R } }> {
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
  yield { event: { case: last, value: await finished } };
}

/** The streaming sibling of a method, which ends with what that answers. */
export function progressOf<Request, R>(
  method: (request: Request, context: HandlerContext, onProgress?: OnProgress) => Promise<R>,
) {
  return (request: Request, context: HandlerContext) =>
    progressEvents((onProgress) => method(request, context, onProgress), "result");
}

/** How long work ends early, and who hears of it. */
export function workOf({ signal }: HandlerContext, onProgress?: OnProgress) {
  return { signal, ...(onProgress && { onProgress }) };
}
