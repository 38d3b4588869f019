import { setTimeout as wait } from "node:timers/promises";

/** Tries until `attempt` does not throw, and fails with its last error when it still does at the deadline. */
export async function eventually<T>(attempt: () => Promise<T> | T, timeoutMs = 10_000): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await wait(50);
    }
  }
}
