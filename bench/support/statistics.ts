/** The value that a share of the samples does not exceed (nearest rank); `share` above 0, up to 1. */
export function percentile(samples: readonly number[], share: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  const value = sorted[Math.ceil(share * sorted.length) - 1];
  if (value === undefined) throw new RangeError("no samples");
  return value;
}

export function median(samples: readonly number[]): number {
  return percentile(samples, 0.5);
}

/** Duration of `work` in milliseconds. */
export async function timeMs(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

/**
 * Runs two functions in turn, so that other load affects both alike; one round of each before it counts. @returns the
 * medians of `rounds` runs each, in milliseconds.
 */
export async function compareMs(
  rounds: number,
  measured: () => Promise<unknown>,
  yardstick: () => Promise<unknown>,
): Promise<{ measuredMs: number; yardstickMs: number }> {
  const times = { measured: [] as number[], yardstick: [] as number[] };
  for (let round = -1; round < rounds; round += 1) {
    const measuredMs = await timeMs(measured);
    const yardstickMs = await timeMs(yardstick);
    if (round < 0) continue;
    times.measured.push(measuredMs);
    times.yardstick.push(yardstickMs);
  }
  return { measuredMs: median(times.measured), yardstickMs: median(times.yardstick) };
}
