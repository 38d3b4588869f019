/** The engine's events as a stream for one reader. */
import { SvcError } from "../errors.ts";
import type { EngineEvent } from "./event-stream.ts";
import type { EngineEvents } from "./events.ts";

/** A reader that is slower than this many events behind is let go of. */
const maxWaiting = 10_000;

/**
 * What happens from now on, until `signal` aborts.
 * @throws SvcError `unavailable` when the engine goes away, as what happens meanwhile is never told;
 *   `resource_exhausted` for a reader that does not keep up
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
  const message = `more than ${maxWaiting} events wait to be read: read faster, or ask for fewer types`;
  return new SvcError("too_many", message);
}
