/** Next firings compared with cron-parser and with the policy, and a year of the evaluator's minutes. */
import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { CronExpressionParser } from "cron-parser";
import { isDue, viewMinute } from "../../../src/triggers/matcher.ts";
import { type Firing, nextFiring } from "../../../src/triggers/next-firing.ts";
import { TriggerParser } from "../../../src/triggers/trigger.ts";
import { type Zone, Zones } from "../../../src/triggers/zone.ts";
import { Evaluation, job } from "../../scheduler/support/evaluation.ts";
import { parseTrigger } from "../../scheduler/support/parse-trigger.ts";
import { Policy } from "../../triggers/support/policy.ts";
import { between, createRandom, pick, randomCron } from "../../triggers/support/random-trigger.ts";
import { WallClock } from "../../triggers/support/wall-clock.ts";

// Next firings compared with cron-parser: every difference has a named reason, for which the scheduling policy is
// right.

/** In parts, so that progress on a slow host is visible. */
const parts = 5;
const expressionsPerPart = 2_000;
const [minuteMs, hourMs, dayMs] = [60_000, 3_600_000, 86_400_000];
const yearMs = 366 * dayMs;
const [firstMs, lastMs] = [Date.UTC(2026, 0, 2), Date.UTC(2027, 0, 1)];
/** With the peculiarities that cron sees. */
const zones = [
  "UTC",
  "Europe/Berlin",
  "America/New_York",
  "Africa/Casablanca", // one hour less in Ramadan
  "Asia/Kolkata", // half an hour off
  "Australia/Lord_Howe", // changes by half an hour
  "Pacific/Chatham", // 45 minutes off, changes at 02:45
  "America/Santiago", // changes at midnight
  "Antarctica/Troll", // changes by two hours
];

interface Difference {
  text: string;
  policy: Policy;
  clock: WallClock;
  afterMs: number;
  ours: Firing | undefined;
  /** The times that cron-parser finds, in milliseconds since 1970, or why it finds none. */
  theirs: number | string;
}

/** In the order of the checks. */
const explanations: { name: string; holds: (difference: Difference) => boolean }[] = [
  {
    name: "cron-parser rejects lists with overlapping items",
    holds: ({ theirs }) => /duplicate values found/.test(String(theirs)),
  },
  {
    name: "cron-parser rejects days that none of the months has",
    holds: ({ theirs, ours }) => /Invalid explicit day/.test(String(theirs)) && ours === undefined,
  },
  {
    name: "cron-parser loops before a clock that is put back by half an hour",
    holds: ({ theirs, clock, afterMs, ours }) =>
      /loop limit/.test(String(theirs)) &&
      ours !== undefined &&
      clock.zone === "Australia/Lord_Howe" &&
      clock.changes.some(({ unixMs, isForward }) => !isForward && unixMs > afterMs && unixMs < ours.unixMs),
  },
  {
    name: "cron-parser looks further than a year",
    holds: ({ theirs, afterMs, ours }) => ours === undefined && Number(theirs) > afterMs + yearMs,
  },
  {
    name: "cron-parser treats a day field such as */2 as restricted, crontab(5) does not",
    holds: (difference) =>
      comesEarlier(difference) && hasStarredDay(difference.text) && !isIntended(difference),
  },
  {
    name: "cron-parser runs what a gap skips at its minute of a later hour or not at all, the policy right after",
    holds: (difference) => difference.ours?.anomaly === "gap" && !comesEarlier(difference),
  },
  {
    name: "cron-parser leaves out minutes of the hour after a gap that is not a whole clock hour",
    holds: (difference) =>
      difference.ours !== undefined &&
      difference.ours.anomaly === "" &&
      !comesEarlier(difference) &&
      isAfterChange(difference.clock, difference.ours.unixMs, true),
  },
  {
    name: "cron-parser runs wildcard triggers of a skipped hour in the next, the policy lets them follow the clock",
    holds: (difference) =>
      !difference.policy.isFixed &&
      comesEarlier(difference) &&
      !isIntended(difference) &&
      isAfterChange(difference.clock, Number(difference.theirs), true),
  },
  {
    name: "cron-parser, asked within a repeated hour, runs fixed times a second time",
    holds: (difference) =>
      difference.policy.isFixed &&
      comesEarlier(difference) &&
      isRepeat(difference, Number(difference.theirs)),
  },
  {
    name: "cron-parser runs wildcard triggers only once in a repeated hour, the policy lets them follow the clock",
    holds: (difference) =>
      !difference.policy.isFixed &&
      difference.ours !== undefined &&
      !comesEarlier(difference) &&
      isRepeat(difference, difference.ours.unixMs),
  },
  {
    name: "cron-parser goes an hour too far, or back before the instant asked, where clocks change at a quarter to",
    holds: ({ clock, afterMs }) =>
      clock.zone === "Pacific/Chatham" &&
      clock.changes.some(({ unixMs }) => Math.abs(unixMs - afterMs) < 2 * hourMs),
  },
];

const clocks = zones.map((zone) => new WallClock(zone, firstMs - dayMs, lastMs + yearMs + dayMs));
const counts = new Map<string, number>(explanations.map(({ name }) => [name, 0]));

for (let part = 1; part <= parts; part += 1) {
  test.serial(
    `${expressionsPerPart} random expressions fire as in cron-parser, or differ for a named reason (part ${part})`,
    (t) => {
      const random = createRandom(part);
      const [known, parser] = [new Zones(), new TriggerParser()];
      const [unexplained, offPolicy] = [[] as string[], [] as string[]];
      for (let count = 0; count < expressionsPerPart; count += 1) {
        const text = randomCron(random);
        const clock = pick(random, clocks);
        const afterMs = randomInstant(random, clock);
        const ours = nextFiring(parser.parse(text), known.get(clock.zone), afterMs);
        const theirs = askCronParser(text, clock.zone, afterMs);
        if (ours?.unixMs === theirs) continue;
        const difference = { text, policy: new Policy(text), clock, afterMs, ours, theirs };
        const name = explanations.find(({ holds }) => holds(difference))?.name;
        if (name === undefined) unexplained.push(describe(difference));
        else counts.set(name, (counts.get(name) ?? 0) + 1);
        if (!isPolicy(difference)) offPolicy.push(describe(difference));
      }
      t.deepEqual(unexplained, []);
      t.deepEqual(offPolicy, []);
    },
  );
}

test.serial("every allowed difference from the reference occurs", (t) => {
  for (const [name, count] of counts) t.log(`${count} × ${name}`);
  t.deepEqual(
    [...counts].filter(([, count]) => count === 0),
    [],
  );
});

/** Mostly the hours around a clock change. */
function randomInstant(random: () => number, clock: WallClock): number {
  const changes = clock.changes
    .filter(({ unixMs }) => unixMs < lastMs)
    // cron-parser takes half a second to loop, so a few times are enough.
    .filter(({ isForward }) => clock.zone !== "Australia/Lord_Howe" || isForward || random() < 0.015);
  if (changes.length === 0 || random() < 0.6) return between(random, firstMs, lastMs);
  return pick(random, changes).unixMs + between(random, -4 * hourMs, 3 * hourMs);
}

function askCronParser(text: string, tz: string, afterMs: number): number | string {
  try {
    return CronExpressionParser.parse(text, { tz, currentDate: new Date(afterMs) })
      .next()
      .getTime();
  } catch (error) {
    return String(error);
  }
}

function isPolicy({ policy, clock, afterMs, ours }: Difference): boolean {
  const next = policy.nextIndex(clock, clock.indexOf(afterMs) + 1, clock.indexOf(afterMs + yearMs) + 1);
  if (next === undefined || ours === undefined) return next === undefined && ours === undefined;
  return clock.unixMsAt(next) === ours.unixMs && policy.dueAt(clock, next) === ours.anomaly;
}

function comesEarlier({ theirs, ours }: Difference): boolean {
  return Number(theirs) < (ours?.unixMs ?? Infinity);
}

function hasStarredDay(text: string): boolean {
  const [, , dayOfMonth = "", , dayOfWeek = ""] = text.split(" ");
  return [dayOfMonth, dayOfWeek].some((field) => field.startsWith("*") && field !== "*");
}

/** Whether the trigger names the local time at which cron-parser fires. */
function isIntended({ policy, clock, theirs }: Difference): boolean {
  return policy.wants(clock.wallAt(clock.indexOf(Number(theirs))));
}

function isRepeat({ clock }: Difference, unixMs: number): boolean {
  return clock.oddityAt(clock.indexOf(unixMs))?.isRepeat === true;
}

/** Whether the clock was put forward (or back) within the two hours before, or in this minute. */
function isAfterChange(clock: WallClock, unixMs: number, isForward: boolean): boolean {
  return clock.changes.some(
    (change) =>
      change.isForward === isForward && unixMs >= change.unixMs && unixMs < change.unixMs + 2 * hourMs,
  );
}

function describe({ text, clock, afterMs, ours, theirs }: Difference): string {
  const found = typeof theirs === "number" ? formatInstant(theirs) : theirs;
  return `${text} in ${clock.zone} after ${formatInstant(afterMs)}: ours ${ours === undefined ? "none" : formatInstant(ours.unixMs)} ${ours?.anomaly ?? ""}, theirs ${found}`;
}

function formatInstant(unixMs: number): string {
  return new Date(Math.floor(unixMs / minuteMs) * minuteMs).toISOString();
}

// Every minute of a year, in zones with clock changes: evaluator, preview and policy agree.

const [yearStartMs, yearEndMs] = [Date.UTC(2026, 0, 1), Date.UTC(2027, 0, 1)];

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
    const clock = new WallClock(name, yearStartMs - dayMs, yearEndMs + dayMs);
    const { firings, offPolicy } = compare(texts, clock, new Zones().get(name), yearStartMs, yearEndMs);
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
    const clock = new WallClock(name, yearStartMs, yearEndMs + 365 * dayMs);
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
      const expected = policy.dueAt(clock, at);
      const computed = next?.unixMs === unixMs ? next.anomaly : "no";
      if (isDue(trigger, view) !== (expected !== "no") || computed !== expected) {
        offPolicy.push(
          `${trigger.text} at ${new Date(unixMs).toISOString()}: "${expected}", foretold "${computed}"`,
        );
      }
      if (expected !== "no") firings += 1;
      if (computed !== "no") job.next = nextFiring(trigger, zone, unixMs);
    }
  }
  return { firings, offPolicy };
}

// A whole year of the evaluator, with every reading of the clock, against a second implementation of the policy.

const [yearFirstMs, yearLastMs] = [Date.UTC(2026, 0, 1), Date.UTC(2027, 0, 1)];

const triggers = [
  "*/7 1-3 * * *",
  "hourly",
  "daily@02:30",
  "03:00",
  "15 2 */2 * 0",
  "0 12 1 * 1",
  "0 0 29 2 *",
];
const jobZones = [
  "UTC",
  "Europe/Berlin",
  "America/New_York",
  "Australia/Lord_Howe",
  "Africa/Casablanca",
  "Asia/Kolkata",
];
const localZone = "Europe/Berlin";

test("a simulated year of mixed jobs has 0 firings that violate the policy", async (t) => {
  const jobs = ["", ...jobZones].flatMap((timeZone) =>
    triggers.map((trigger, at) => job(idOf(timeZone, at), trigger, { timeZone })),
  );
  await using evaluation = new Evaluation({ start: "2025-12-31T23:59:59Z", jobs, localZone });
  // Day by day, so that work deferred by each minute is done.
  for (let nowMs = evaluation.clock.nowMs(); nowMs < yearLastMs - 1; nowMs = evaluation.clock.nowMs()) {
    evaluation.clock.pass(Math.min(dayMs, yearLastMs - 1 - nowMs));
    await nextTurn();
  }

  const fired = Map.groupBy(evaluation.fired, ({ id }) => id);
  for (const timeZone of ["", ...jobZones]) {
    const clock = new WallClock(
      timeZone === "" ? localZone : timeZone,
      yearFirstMs - dayMs,
      yearLastMs + dayMs,
    );
    for (const [at, text] of triggers.entries()) {
      const id = idOf(timeZone, at);
      t.deepEqual(fired.get(id)?.map(({ atMs }) => atMs) ?? [], firingsOf(new Policy(text), clock), id);
    }
  }
  t.true(evaluation.fired.every(({ minuteMs, atMs }) => minuteMs === atMs));
  t.deepEqual(evaluation.skipped, []);
  t.log(
    `${evaluation.fired.length} firings of ${jobs.length} jobs, each in the first millisecond of its minute`,
  );
});

function idOf(timeZone: string, at: number): string {
  return `${timeZone.replaceAll("/", "-")}.${at}`;
}

function firingsOf(policy: Policy, clock: WallClock): number[] {
  const firings: number[] = [];
  for (let at = clock.indexOf(yearFirstMs); at < clock.indexOf(yearLastMs); at += 1) {
    if (policy.dueAt(clock, at) !== "no") firings.push(clock.unixMsAt(at));
  }
  return firings;
}
