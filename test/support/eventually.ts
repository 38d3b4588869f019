import { setTimeout as wait } from "node:timers/promises";

const leastPauseMs = 10;
/** Of the time that it has taken so far: what comes late may be seen a little later, and leaves others the processor until then. */
const pausePart = 0.1;

/**
 * Tries until `attempt` does not throw, and fails with its last error when it still does at the deadline.
 * @param timeoutMs the default is for a machine that does much else; what is promised within a time says so here
 * @param mostPauseMs between two tries: less for what is over soon
 */
export async function eventually<T>(
  attempt: () => Promise<T> | T,
  timeoutMs = 30_000,
  mostPauseMs = 250,
): Promise<T> {
  const begunMs = performance.now();
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      const passedMs = performance.now() - begunMs;
      if (passedMs > timeoutMs) throw error;
      await wait(Math.min(Math.max(passedMs * pausePart, leastPauseMs), mostPauseMs));
    }
  }
}
