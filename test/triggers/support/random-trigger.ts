/** Random triggers, and the random numbers for them: the same in every run. */

/** Numbers from 0 up to and without 1; a linear congruence is random enough to choose with. */
export function createRandom(seed: number): () => number {
  let state = BigInt(seed);
  return () => {
    state = (state * 6_364_136_223_846_793_005n + 1_442_695_040_888_963_407n) & 0xffff_ffff_ffff_ffffn;
    return Number(state >> 32n) / 2 ** 32;
  };
}

/** A whole number from `min` to `max`. */
export function between(random: () => number, min: number, max: number): number {
  return min + Math.floor(random() * (max - min + 1));
}

export function pick<T>(random: () => number, choices: readonly T[]): T {
  return choices[between(random, 0, choices.length - 1)]!;
}

/** Five cron fields of every kind of item. */
export function randomCron(random: () => number): string {
  // A day that most years do not have.
  if (random() < 0.002) return `${between(random, 0, 59)} ${between(random, 0, 23)} 29 2 *`;
  return [
    randomField(random, 0, 59, 0.2),
    // Often the hours of clock changes.
    random() < 0.4 ? String(between(random, 0, 3)) : randomField(random, 0, 23, 0.3),
    randomField(random, 1, 31, 0.65),
    randomField(random, 1, 12, 0.85),
    randomField(random, 0, 7, 0.65),
  ].join(" ");
}

function randomField(random: () => number, min: number, max: number, anyShare: number): string {
  if (random() < anyShare) return "*";
  if (random() < 0.05) return `${randomItem(random, min, max)},${randomItem(random, min, max)}`;
  if (random() < 0.8) return randomItem(random, min, max);
  // Lists with separated items.
  const middle = between(random, min + 1, max);
  return `${between(random, min, middle - 1)},${randomItem(random, middle, max)}`;
}

function randomItem(random: () => number, min: number, max: number): string {
  const first = between(random, min, max);
  const last = between(random, first, max);
  const step = between(random, 1, Math.ceil((max - min) / 2));
  return pick(random, [`${first}`, `${first}`, `${first}-${last}`, `${first}-${last}/${step}`, `*/${step}`]);
}
