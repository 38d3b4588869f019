/** How long a program is away that is asked all the time. */
import { setTimeout as wait } from "node:timers/promises";

const betweenMs = 20;

/**
 * @returns the milliseconds between the last answer before the longest time without one and the first after it, and all
 *   different answers in their order
 */
export async function longestSilence(
  url: string,
  work: () => Promise<unknown>,
): Promise<{ silentMs: number; answers: string[] }> {
  const answers: string[] = [];
  let silentMs = 0;
  let answeredMs = performance.now();
  const ask = async (): Promise<void> => {
    const answer = await fetch(url, { signal: AbortSignal.timeout(5_000) })
      .then((response) => response.text())
      .catch(() => undefined);
    if (answer === undefined) return;
    silentMs = Math.max(silentMs, performance.now() - answeredMs);
    answeredMs = performance.now();
    if (answers.at(-1) !== answer) answers.push(answer);
  };
  const over = new AbortController();
  const asking = (async () => {
    while (!over.signal.aborted) {
      await ask();
      await wait(betweenMs);
    }
    const overMs = performance.now();
    while (answeredMs < overMs) {
      await ask();
      await wait(betweenMs);
    }
  })();
  try {
    await work();
  } finally {
    over.abort();
    await asking;
  }
  return { silentMs, answers };
}
