import { setTimeout as wait } from "node:timers/promises";

/** Samples again and again until `signal` aborts, with at least `intervalMs` from one frame to the next. */
export async function* statsFrames<S>(
  sample: () => Promise<S>,
  intervalMs: number,
  signal: AbortSignal,
): AsyncGenerator<{ stats: S }> {
  while (!signal.aborted) {
    const begunMs = performance.now();
    yield { stats: await sample() };
    const restMs = intervalMs - (performance.now() - begunMs);
    if (restMs > 0) await wait(restMs, undefined, { signal });
  }
}
