/** The engine's events as a stream for one reader. */
import { SvcError } from "../errors.ts";
import type { EngineEvent } from "./event-stream.ts";
import type { EngineEvents } from "./events.ts";

/** A reader that falls further behind than this is disconnected. */
const maxWaiting = 10_000;

/**
 * Yields events from now on, until `signal` aborts.
 * @throws SvcError `unavailable` when the connection to the engine is lost, because events are lost with it;
 *   `resource_exhausted` for a reader that is too slow
 */
export async function* followEvents(
  events: EngineEvents,
  signal: AbortSignal,
): AsyncGenerator<EngineEvent, void> {
  events.start();
  await events.verify();
  let waiting: EngineEvent[] = [];
  let end: SvcError | undefined;
  let wake = Promise.withResolvers<undefined>();
  const stop = (): void => wake.resolve(undefined);
  using _listening = events.listen({
    onEvent: (event) => {
      if (waiting.length >= maxWaiting) end ??= tooSlow();
      else waiting.push(event);
      stop();
    },
    onDisconnect: (error) => {
      end ??= error;
      stop();
    },
  });
  signal.addEventListener("abort", stop, { once: true });
  try {
    while (!signal.aborted) {
      const ready = waiting;
      waiting = [];
      yield* ready;
      if (ready.length > 0) continue;
      if (end !== undefined) throw end;
      await wake.promise;
      wake = Promise.withResolvers<undefined>();
    }
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

function tooSlow(): SvcError {
  const message = `more than ${maxWaiting} unread events are pending; read faster, or request fewer types`;
  return new SvcError("too_many", message);
}
