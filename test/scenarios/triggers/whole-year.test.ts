/** Every minute of a year, in zones with clock changes: evaluator, preview and policy agree. */
import test from "ava";
import { isDue, viewMinute } from "../../../src/triggers/matcher.ts";
import { nextFiring } from "../../../src/triggers/next-firing.ts";
import { Zones, type Zone } from "../../../src/triggers/zone.ts";
import { Policy } from "../../triggers/support/policy.ts";
import { createRandom, randomCron } from "../../triggers/support/random-trigger.ts";
import { WallClock } from "../../triggers/support/wall-clock.ts";
import { parseTrigger } from "../../scheduler/support/parse-trigger.ts";

const [firstMs, lastMs] = [Date.UTC(2026, 0, 1), Date.UTC(2027, 0, 1)];
const dayMs = 86_400_000;

const chosen = [
  "hourly",
  "daily@00:00",
  "01:30",
  "02:15",
  "02:30",
  "02:59",
  "03:00",
  "* * * * *",
  "*/15 1-3 * * *",
  "15,45 * * * *",
  "30 */2 * * *",
  "0,30 1,2,3 * * *",
  "0-59 2 * * *",
  "30 2 * * 0",
  "15 2 */2 * 0",
  "30 2 25 10 6",
  "45 23 31 12 *",
];

for (const name of [
  "Europe/Berlin",
  "America/New_York",
  "Australia/Lord_Howe",
  "Africa/Casablanca",
  "Asia/Kolkata",
]) {
  test(`in ${name}, no firing of 2026 violates the policy`, (t) => {
    const random = createRandom(26);
    const texts = [...chosen, ...Array.from({ length: 8 }, () => randomCron(random))];
    const clock = new WallClock(name, firstMs - dayMs, lastMs + dayMs);
    const { firings, offPolicy } = compare(texts, clock, new Zones().get(name), firstMs, lastMs);
    t.log(`${firings} firings of ${texts.length} triggers`);
    t.deepEqual(offPolicy, []);
  });
}

test("300 random triggers around each clock change of 2026 and 2027 have 0 firings that violate the policy", (t) => {
  const zones = new Zones();
  const random = createRandom(27);
  for (const name of [
    "Europe/Berlin",
    "Pacific/Chatham",
    "America/Santiago",
    "Antarctica/Troll",
    "Asia/Beirut",
  ]) {
    const clock = new WallClock(name, firstMs, lastMs + 365 * dayMs);
    for (const { unixMs } of clock.changes) {
      const texts = Array.from({ length: 300 }, () => randomCron(random));
      const { offPolicy } = compare(texts, clock, zones.get(name), unixMs - dayMs / 2, unixMs + dayMs / 2);
      t.deepEqual(offPolicy, []);
    }
  }
});

/** Walks the minutes of a period and reports where evaluator, preview and policy disagree. */
function compare(
  texts: readonly string[],
  clock: WallClock,
  zone: Zone,
  fromMs: number,
  toMs: number,
): { firings: number; offPolicy: string[] } {
  const jobs = texts.map((text) => {
    const trigger = parseTrigger(text);
    return { trigger, policy: new Policy(text), next: nextFiring(trigger, zone, fromMs - 1) };
  });
  const offPolicy: string[] = [];
  let firings = 0;
  for (let at = clock.indexOf(fromMs); at < clock.indexOf(toMs); at += 1) {
    const unixMs = clock.unixMsAt(at);
    const view = viewMinute(zone, unixMs);
    for (const job of jobs) {
      const { trigger, policy, next } = job;
      const wanted = policy.dueAt(clock, at);
      const foretold = next?.unixMs === unixMs ? next.anomaly : "no";
      if (isDue(trigger, view) !== (wanted !== "no") || foretold !== wanted) {
        offPolicy.push(
          `${trigger.text} at ${new Date(unixMs).toISOString()}: "${wanted}", foretold "${foretold}"`,
        );
      }
      if (wanted !== "no") firings += 1;
      if (foretold !== "no") job.next = nextFiring(trigger, zone, unixMs);
    }
  }
  return { firings, offPolicy };
}
