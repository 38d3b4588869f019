/** Streaming variants of methods: progress events, then the result. */
import type { HandlerContext } from "@connectrpc/connect";
import type { OnProgress, Progress } from "../../work/progress.ts";

export interface ProgressEvent {
  event: { case: "progress"; value: Progress };
}

/**
 * Limit for events that wait for a slow reader. The oldest are dropped, since only current progress matters.
 */
const queueLimit = 256;

/**
 * Runs `work`, and yields its progress, then its result. Leaving the loop early does not end the work; only
 * the call's signal does.
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
  // Awaited below; an earlier rejection must not count as unhandled.
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

/** The streaming variant of a method, which ends with the method's response. */
export function progressOf<Request, R>(
  method: (request: Request, context: HandlerContext, onProgress?: OnProgress) => Promise<R>,
) {
  return (request: Request, context: HandlerContext) =>
    progressEvents((onProgress) => method(request, context, onProgress), "result");
}

/** The signal and the progress callback for long work. */
export function workOf({ signal }: HandlerContext, onProgress?: OnProgress) {
  return { signal, ...(onProgress && { onProgress }) };
}
