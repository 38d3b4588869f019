/** Which archives stay: the newest, and beyond them those of days, weeks and months. */
import test from "ava";
import { expiredArchives, type Retention, type RotatedArchive } from "../../src/backups/rotation.ts";

/** One at noon of each of so many days up to New Year's Eve of 2025, a Wednesday; named for its day. */
function daily(days: number, verified: readonly string[] = []): RotatedArchive[] {
  const lastMs = Date.UTC(2025, 11, 31, 12);
  return Array.from({ length: days }, (_, back) => {
    const createdAtMs = lastMs - back * 86_400_000;
    const name = new Date(createdAtMs).toISOString().slice(0, 10);
    return { name, createdAtMs, verifiedAtMs: verified.includes(name) ? createdAtMs : undefined };
  });
}

function kept(archives: readonly RotatedArchive[], retention: Retention): string[] {
  const gone = expiredArchives(archives, retention);
  return archives.flatMap(({ name }) => (gone.includes(name) ? [] : name));
}

for (const [what, retention, expected] of [
  ["the newest", { keep: 3 }, ["2025-12-31", "2025-12-30", "2025-12-29"]],
  ["of each day", { keepDaily: 2 }, ["2025-12-31", "2025-12-30"]],
  ["of each week, which begins on Monday", { keepWeekly: 3 }, ["2025-12-31", "2025-12-28", "2025-12-21"]],
  ["of each month", { keepMonthly: 3 }, ["2025-12-31", "2025-11-30", "2025-10-31"]],
  [
    "of each kind, one for several of them",
    { keep: 2, keepDaily: 3, keepWeekly: 2, keepMonthly: 2 },
    ["2025-12-31", "2025-12-30", "2025-12-29", "2025-12-28", "2025-11-30"],
  ],
] as const) {
  test(`what is kept ${what}`, (t) => {
    t.deepEqual(kept(daily(400), retention), [...expected]);
    t.deepEqual(kept(daily(400).toReversed(), retention).toReversed(), [...expected], "in any order");
  });
}

test("a week goes over the end of a year, and a day has one archive", (t) => {
  // Monday the 29th of December, and Sunday the 4th of January.
  const at = (text: string) => ({ name: text, createdAtMs: Date.parse(text), verifiedAtMs: undefined });
  const [monday, sunday, next] = [at("2025-12-29T00:00Z"), at("2026-01-04T23:59Z"), at("2026-01-05T00:00Z")];
  t.deepEqual(expiredArchives([monday, sunday, next], { keepWeekly: 2 }), [monday.name]);
  const [morning, evening] = [at("2026-01-05T01:00Z"), at("2026-01-05T23:00Z")];
  t.deepEqual(expiredArchives([morning, evening, sunday], { keepDaily: 2 }), [morning.name]);
  const early = at("1969-12-28T12:00Z");
  t.deepEqual(expiredArchives([early, at("1969-12-29T12:00Z")], { keepWeekly: 2 }), [], "before 1970, too");
});

test("all stay where nothing is said, and the one that was verified last in any case", (t) => {
  t.deepEqual(expiredArchives(daily(40), {}), []);
  t.deepEqual(kept(daily(40, ["2025-12-01", "2025-12-02"]), { keep: 1 }), ["2025-12-31", "2025-12-02"]);
});
