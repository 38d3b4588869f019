/** How fast bytes have come of late. */

/** What is older does not count: people want to know how it goes now. */
const windowMs = 10_000;
const samplesEveryMs = 500;
/** A rate of less time than this says nothing. */
const leastMs = 1000;

export class TransferRate {
  #samples: { readonly atMs: number; readonly doneBytes: number }[] = [];

  /** @param doneBytes so far; fewer than before begin anew @returns bytes per second, once that is known */
  at(atMs: number, doneBytes: number): number | undefined {
    const last = this.#samples.at(-1);
    if (last === undefined || doneBytes < last.doneBytes) this.#samples = [{ atMs, doneBytes }];
    else if (atMs - last.atMs >= samplesEveryMs) this.#samples.push({ atMs, doneBytes });
    while ((this.#samples[1]?.atMs ?? atMs) < atMs - windowMs) this.#samples.shift();
    const [first = { atMs, doneBytes }] = this.#samples;
    const elapsedMs = atMs - first.atMs;
    return elapsedMs < leastMs ? undefined : (1000 * (doneBytes - first.doneBytes)) / elapsedMs;
  }
}
