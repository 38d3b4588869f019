/** The longest time without a response of a program that is polled constantly. */
import { setTimeout as wait } from "node:timers/promises";

const betweenMs = 20;
/** The deadline of the first response after the operation. */
const answerMs = 60_000;

/**
 * @returns the milliseconds between the last response before the longest gap and the first after it, and all different
 * responses in order
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
      if (performance.now() - overMs > answerMs) throw new Error(`${url} does not respond any more`);
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
