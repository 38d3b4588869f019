import { setTimeout as wait } from "node:timers/promises";

/** Yields samples until `signal` aborts, at least `intervalMs` apart. */
export async function* statsFrames<S>(
  sample: () => Promise<S>,
  intervalMs: number,
  signal: AbortSignal,
): AsyncGenerator<{ stats: S }> {
  let dueMs = performance.now();
  while (!signal.aborted) {
    const begunMs = performance.now();
    const stats = await sample();
    const tookMs = performance.now() - begunMs;
    // Sampling times vary.
    await rest(dueMs - performance.now(), signal);
    dueMs = performance.now() + intervalMs;
    yield { stats };
    await rest(dueMs - performance.now() - tookMs, signal);
  }
}

async function rest(ms: number, signal: AbortSignal): Promise<void> {
  if (ms > 0) await wait(ms, undefined, { signal });
}
