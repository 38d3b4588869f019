/** Parses durations and sizes in a manifest: `30s`, `1h30m`, `512MiB`. */

const durationUnits = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

const sizeUnits = {
  B: 1,
  kB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
} as const;

/**
 * Milliseconds of a duration such as `500ms`, `30s`, `1h30m`: whole numbers with a unit, largest unit first.
 * `undefined` for other text.
 */
export function parseDuration(text: string): number | undefined {
  const parts = /^(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?$/.exec(text);
  if (parts === null || text === "") return undefined;
  const [, d, h, m, s, ms] = parts;
  const total =
    count(d) * durationUnits.d +
    count(h) * durationUnits.h +
    count(m) * durationUnits.m +
    count(s) * durationUnits.s +
    count(ms);
  return Number.isSafeInteger(total) ? total : undefined;
}

function count(digits: string | undefined): number {
  return digits === undefined ? 0 : Number(digits);
}

/** Bytes of a size such as `512MiB`, `1.5GB`, `100B`. `undefined` for other text. */
export function parseSize(text: string): number | undefined {
  const parts = /^(\d{1,12}(?:\.\d{1,3})?)(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)$/.exec(text);
  if (parts === null) return undefined;
  const bytes = Number(parts[1]) * sizeUnits[parts[2] as keyof typeof sizeUnits];
  return Number.isSafeInteger(Math.round(bytes)) ? Math.round(bytes) : undefined;
}
