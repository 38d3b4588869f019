/** Selects the expired archives of an app, which `remove-expired.ts` prunes. */

export interface Retention {
  /** Number of newest archives to keep. */
  keep?: number | undefined;
  /** Additionally the newest of each of this many days, weeks (from Monday) and months, in UTC. */
  keepDaily?: number | undefined;
  keepWeekly?: number | undefined;
  keepMonthly?: number | undefined;
}

export interface DatedArchive {
  name: string;
  createdAtMs: number;
  verifiedAtMs: number | undefined;
}

const dayMs = 86_400_000;

/** The names of expired archives; none without a retention. The last verified archive never expires. */
export function expiredArchives(archives: readonly DatedArchive[], retention: Retention): string[] {
  const { keep = 0, keepDaily = 0, keepWeekly = 0, keepMonthly = 0 } = retention;
  if (keep + keepDaily + keepWeekly + keepMonthly === 0) return [];
  const newestFirst = archives.toSorted(
    (a, b) => b.createdAtMs - a.createdAtMs || (a.name < b.name ? 1 : -1),
  );
  const retained = new Set(newestFirst.slice(0, Math.max(keep, 1)));
  for (const [count, periodOf] of [
    [keepDaily, dayOf],
    [keepWeekly, weekOf],
    [keepMonthly, monthOf],
  ] as const) {
    const periods = new Set<string>();
    for (const archive of newestFirst) {
      const period = periodOf(archive.createdAtMs);
      if (periods.size >= count || periods.has(period)) continue;
      periods.add(period);
      retained.add(archive);
    }
  }
  const verified = newestFirst.filter(({ verifiedAtMs }) => verifiedAtMs !== undefined);
  const lastVerified = verified.reduce<DatedArchive | undefined>(
    (last, each) => ((last?.verifiedAtMs ?? 0) >= (each.verifiedAtMs ?? 0) ? last : each),
    undefined,
  );
  return newestFirst.filter((each) => !retained.has(each) && each !== lastVerified).map(({ name }) => name);
}

function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}

/** The Monday of the week, as a day. 1970-01-01 was a Thursday. */
function weekOf(ms: number): string {
  const days = Math.floor(ms / dayMs);
  return dayOf((days - ((((days + 3) % 7) + 7) % 7)) * dayMs);
}

function monthOf(ms: number): string {
  return dayOf(ms).slice(0, 7);
}
