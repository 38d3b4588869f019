/** Firings from hand-made tables: the calendar, and the policy for clock changes. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { isDue, viewMinute } from "../../src/triggers/matcher.ts";
import { nextFiring } from "../../src/triggers/next-firing.ts";
import { Zones } from "../../src/triggers/zone.ts";
import { parseTrigger } from "../scheduler/support/parse-trigger.ts";
import { formatFiring } from "./support/format-firing.ts";
import { between, createRandom } from "./support/random-trigger.ts";

const zones = new Zones();

interface Row {
  trigger: string;
  after: string;
  /** The next firings in local time with their offset, and the anomaly. */
  firings: string[];
}

const tables: Record<string, Row[]> = {
  UTC: [
    {
      trigger: "* * * * *",
      after: "2026-01-01T00:00:00.000Z",
      firings: ["2026-01-01T00:01+00:00", "2026-01-01T00:02+00:00"],
    },
    { trigger: "* * * * *", after: "2026-01-01T00:00:00.001Z", firings: ["2026-01-01T00:01+00:00"] },
    { trigger: "* * * * *", after: "2025-12-31T23:59:59.999Z", firings: ["2026-01-01T00:00+00:00"] },
    {
      trigger: "* * * * *",
      after: "1969-12-31T23:58:30.000Z",
      firings: ["1969-12-31T23:59+00:00", "1970-01-01T00:00+00:00"],
    },
    {
      trigger: "hourly",
      after: "2026-12-31T22:30Z",
      firings: ["2026-12-31T23:00+00:00", "2027-01-01T00:00+00:00"],
    },
    {
      trigger: "30,31 0 * * *",
      after: "2026-01-01T00:29Z",
      firings: ["2026-01-01T00:30+00:00", "2026-01-01T00:31+00:00", "2026-01-02T00:30+00:00"],
    },
    {
      trigger: "59 23 31 * *",
      after: "2026-01-31T23:59Z",
      firings: ["2026-03-31T23:59+00:00", "2026-05-31T23:59+00:00"],
    },
    // Either day matches if both are restricted: the first Fridays of 2026, and the 13ths.
    {
      trigger: "0 0 13 * 5",
      after: "2026-01-08T12:00Z",
      firings: ["2026-01-09T00:00+00:00", "2026-01-13T00:00+00:00", "2026-01-16T00:00+00:00"],
    },
    // Both must match if one starts with a star: odd days that are Fridays.
    {
      trigger: "0 0 */2 * 5",
      after: "2026-01-01T12:00Z",
      firings: ["2026-01-09T00:00+00:00", "2026-01-23T00:00+00:00", "2026-02-13T00:00+00:00"],
    },
    { trigger: "0 0 29 2 *", after: "2027-02-28T00:00Z", firings: ["2028-02-29T00:00+00:00"] },
    { trigger: "0 0 29 2 *", after: "2027-02-27T23:59Z", firings: ["none"] },
    { trigger: "0 0 29 2 *", after: "2028-02-29T00:00Z", firings: ["none"] },
    { trigger: "0 0 29 2 1", after: "2099-12-31T00:00Z", firings: ["2100-02-01T00:00+00:00"] },
    { trigger: "0 0 30 2 *", after: "2026-01-01T00:00Z", firings: ["none"] },
    { trigger: "0 0 31 4,6,9,11 *", after: "2026-01-01T00:00Z", firings: ["none"] },
    { trigger: "0 0 1 1 *", after: "2026-01-01T00:00Z", firings: ["2027-01-01T00:00+00:00"] },
  ],
  "Europe/Berlin": [
    {
      trigger: "30 2 * * *",
      after: "2026-03-28T12:00Z",
      firings: ["2026-03-29T03:00+02:00 gap", "2026-03-30T02:30+02:00"],
    },
    {
      trigger: "0,15,30 2 * * *",
      after: "2026-03-28T12:00Z",
      firings: ["2026-03-29T03:00+02:00 gap", "2026-03-30T02:00+02:00"],
    },
    {
      trigger: "daily@03:00",
      after: "2026-03-28T12:00Z",
      firings: ["2026-03-29T03:00+02:00", "2026-03-30T03:00+02:00"],
    },
    {
      trigger: "0 2,3 * * *",
      after: "2026-03-28T12:00Z",
      firings: ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"],
    },
    {
      trigger: "30 2 29 3 *",
      after: "2026-03-28T12:00Z",
      firings: ["2026-03-29T03:00+02:00 gap", "2027-03-29T02:30+02:00"],
    },
    {
      trigger: "30 2 * * 7",
      after: "2026-03-28T12:00Z",
      firings: ["2026-03-29T03:00+02:00 gap", "2026-04-05T02:30+02:00"],
    },
    { trigger: "30 2 28 3 1", after: "2026-03-28T12:00Z", firings: ["2026-03-30T02:30+02:00"] },
    {
      trigger: "59 1 * * *",
      after: "2026-03-28T12:00Z",
      firings: ["2026-03-29T01:59+01:00", "2026-03-30T01:59+02:00"],
    },
    {
      trigger: "30 * * * *",
      after: "2026-03-29T00:00Z",
      firings: ["2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"],
    },
    { trigger: "*/30 2 * * *", after: "2026-03-28T12:00Z", firings: ["2026-03-30T02:00+02:00"] },
    {
      trigger: "30 */2 * * *",
      after: "2026-03-28T23:00Z",
      firings: ["2026-03-29T00:30+01:00", "2026-03-29T04:30+02:00"],
    },
    {
      trigger: "30 2 * * *",
      after: "2026-10-24T12:00Z",
      firings: ["2026-10-25T02:30+02:00 repeated", "2026-10-26T02:30+01:00"],
    },
    { trigger: "30 2 * * *", after: "2026-10-25T00:45Z", firings: ["2026-10-26T02:30+01:00"] },
    {
      trigger: "0 2,3 * * *",
      after: "2026-10-24T12:00Z",
      firings: ["2026-10-25T02:00+02:00 repeated", "2026-10-25T03:00+01:00"],
    },
    {
      trigger: "*/30 2 * * *",
      after: "2026-10-24T12:00Z",
      firings: [
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T02:30+01:00",
        "2026-10-26T02:00+01:00",
      ],
    },
    {
      trigger: "hourly",
      after: "2026-10-24T23:00Z",
      firings: ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00", "2026-10-25T03:00+01:00"],
    },
  ],
  "America/New_York": [
    {
      trigger: "02:30",
      after: "2026-03-07T12:00Z",
      firings: ["2026-03-08T03:00-04:00 gap", "2026-03-09T02:30-04:00"],
    },
    {
      trigger: "*/20 1,2 * * *",
      after: "2026-03-08T06:30Z",
      firings: ["2026-03-08T01:40-05:00", "2026-03-09T01:00-04:00"],
    },
    {
      trigger: "01:30",
      after: "2026-10-31T12:00Z",
      firings: ["2026-11-01T01:30-04:00 repeated", "2026-11-02T01:30-05:00"],
    },
    {
      trigger: "15 * * * *",
      after: "2026-11-01T05:00Z",
      firings: ["2026-11-01T01:15-04:00", "2026-11-01T01:15-05:00", "2026-11-01T02:15-05:00"],
    },
    { trigger: "0 0 1 1 *", after: "2026-06-01T00:00Z", firings: ["2027-01-01T00:00-05:00"] },
  ],
  "Australia/Lord_Howe": [
    {
      trigger: "15 2 * * *",
      after: "2026-10-03T12:00Z",
      firings: ["2026-10-04T02:30+11:00 gap", "2026-10-05T02:15+11:00"],
    },
    { trigger: "30 2 * * *", after: "2026-10-03T12:00Z", firings: ["2026-10-04T02:30+11:00"] },
    {
      trigger: "0,30 2 * * *",
      after: "2026-10-03T12:00Z",
      firings: ["2026-10-04T02:30+11:00", "2026-10-05T02:00+11:00"],
    },
    {
      trigger: "*/15 2 * * *",
      after: "2026-10-03T12:00Z",
      firings: ["2026-10-04T02:30+11:00", "2026-10-04T02:45+11:00"],
    },
    {
      trigger: "45 1 * * *",
      after: "2026-04-04T12:00Z",
      firings: ["2026-04-05T01:45+11:00 repeated", "2026-04-06T01:45+10:30"],
    },
    {
      trigger: "15 1 * * *",
      after: "2026-04-04T12:00Z",
      firings: ["2026-04-05T01:15+11:00", "2026-04-06T01:15+10:30"],
    },
    {
      trigger: "*/15 1 * * *",
      after: "2026-04-04T14:15Z",
      firings: [
        "2026-04-05T01:30+11:00",
        "2026-04-05T01:45+11:00",
        "2026-04-05T01:30+10:30",
        "2026-04-05T01:45+10:30",
      ],
    },
  ],
  "Africa/Casablanca": [
    {
      trigger: "30 2 * * *",
      after: "2026-02-14T12:00Z",
      firings: ["2026-02-15T02:30+01:00 repeated", "2026-02-16T02:30+00:00"],
    },
    { trigger: "daily@03:00", after: "2026-02-14T12:00Z", firings: ["2026-02-15T03:00+00:00"] },
    {
      trigger: "30 2 * * *",
      after: "2026-03-21T12:00Z",
      firings: ["2026-03-22T03:00+01:00 gap", "2026-03-23T02:30+01:00"],
    },
    { trigger: "hourly", after: "2026-03-22T01:00Z", firings: ["2026-03-22T03:00+01:00"] },
  ],
  "Asia/Kolkata": [
    {
      trigger: "hourly",
      after: "2026-01-01T00:00Z",
      firings: ["2026-01-01T06:00+05:30", "2026-01-01T07:00+05:30"],
    },
    {
      trigger: "02:30",
      after: "2026-03-28T12:00Z",
      firings: ["2026-03-29T02:30+05:30", "2026-03-30T02:30+05:30"],
    },
    {
      trigger: "0 0 1 1 *",
      after: "2025-12-31T18:00Z",
      firings: ["2026-01-01T00:00+05:30", "2027-01-01T00:00+05:30"],
    },
  ],
  // 30 December 2011, a Friday, was skipped.
  "Pacific/Apia": [
    {
      trigger: "0 12 * * *",
      after: "2011-12-29T12:00Z",
      firings: ["2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00 gap", "2011-12-31T12:00+14:00"],
    },
    {
      trigger: "0 0 * * *",
      after: "2011-12-29T12:00Z",
      firings: ["2011-12-31T00:00+14:00", "2012-01-01T00:00+14:00"],
    },
    {
      trigger: "30 5 30 12 *",
      after: "2011-12-29T12:00Z",
      firings: ["2011-12-31T00:00+14:00 gap", "2012-12-30T05:30+14:00"],
    },
    {
      trigger: "0 12 * * 5",
      after: "2011-12-29T12:00Z",
      firings: ["2011-12-31T00:00+14:00 gap", "2012-01-06T12:00+14:00"],
    },
    { trigger: "0 12 * * 4", after: "2011-12-29T23:00Z", firings: ["2012-01-05T12:00+14:00"] },
    { trigger: "hourly", after: "2011-12-30T09:00Z", firings: ["2011-12-31T00:00+14:00"] },
  ],
  // Put back when its year ended, before UTC's did.
  "Asia/Dhaka": [
    {
      trigger: "30 23 * * *",
      after: "2009-12-31T12:00Z",
      firings: ["2009-12-31T23:30+07:00 repeated", "2010-01-01T23:30+06:00"],
    },
  ],
  // Put back in the first hours of a year.
  "Africa/Sao_Tome": [
    {
      trigger: "30 1 * * *",
      after: "2018-12-31T12:00Z",
      firings: ["2019-01-01T01:30+01:00 repeated", "2019-01-02T01:30+00:00"],
    },
  ],
};

for (const [name, rows] of Object.entries(tables)) {
  for (const { trigger: text, after, firings } of rows) {
    test(`${text} in ${name} after ${after}: ${firings.join(", ")}`, (t) => {
      const [trigger, zone] = [parseTrigger(text), zones.get(name)];
      let afterMs = Date.parse(after);
      for (const expected of firings) {
        const firing = nextFiring(trigger, zone, afterMs);
        t.is(formatFiring(firing, zone), expected);
        if (firing === undefined) return;
        t.true(isDue(trigger, viewMinute(zone, firing.unixMs)));
        t.true(
          isDue(trigger, viewMinute(zone, firing.unixMs + 59_999)),
          "every instant of the minute is the same",
        );
        afterMs = firing.unixMs;
      }
    });
  }
}

const known = ["UTC", "Europe/Berlin", "Asia/Kolkata", "US/Eastern", "Etc/GMT+5", "europe/berlin"];
const unknown = ["", "Europe", "Mars/Olympus", "+05:30", "Europe/Berlin\0", "../etc/passwd", " UTC", "Local"];

test("zones are UTC or an IANA name, and created once", (t) => {
  const zones = new Zones();
  for (const name of known) {
    t.true(zones.isKnown(name), name);
    t.is(zones.get(name).name, name);
    t.is(zones.get(name), zones.get(name));
  }
});

test("a zone is loaded once, regardless of the spellings of its name", (t) => {
  const zones = new Zones();
  const name = "europe/berlin";
  const atMs = Date.UTC(2026, 5, 1);
  const span = zones.get("Europe/Berlin").spanAt(atMs);
  for (let n = 0; n < 1_100; n++) {
    const spelled = Array.from(name, (letter, at) => ((n >> at) & 1 ? letter.toUpperCase() : letter)).join(
      "",
    );
    t.is(zones.get(spelled).spanAt(atMs), span);
  }
  t.is(zones.get("Europe/Berlin").spanAt(atMs), span);
});

for (const name of unknown) {
  test(`zone ${JSON.stringify(name)} is rejected`, (t) => {
    const zones = new Zones();
    t.false(zones.isKnown(name));
    const error = t.throws(() => zones.get(name), { instanceOf: SvcError });
    t.is(error.code, "invalid_argument");
    t.deepEqual(error.payload, {
      violations: [
        {
          field: "time_zone",
          description: `"${name}" must be UTC or an IANA time zone such as Europe/Berlin`,
        },
      ],
    });
  });
}

test("the local zone is the current one, or UTC if its name is invalid", (t) => {
  let name = "Europe/Berlin";
  const zones = new Zones({ local: () => name });
  t.is(zones.local(), zones.get("Europe/Berlin"));
  name = "Asia/Kolkata";
  t.is(zones.local().offsetMinutesAt(0), 330);
  name = "Etc/Unknown";
  t.is(zones.local(), zones.get("UTC"));
});

for (const { tz, name } of [
  { tz: "Asia/Tokyo", name: "Asia/Tokyo" },
  { tz: "Mars/Olympus", name: "UTC" },
  { tz: "", name: "UTC" },
]) {
  test(`the local zone of a process with TZ=${tz} is ${name}`, async (t) => {
    const module = join(import.meta.dirname, "../../src/triggers/zone.ts");
    const program = `import { Zones } from ${JSON.stringify(module)}; console.log(new Zones().local().name);`;
    const run = promisify(execFile);
    const { stdout } = await run(process.execPath, ["--input-type=module-typescript", "-e", program], {
      env: { TZ: tz },
    });
    t.is(stdout.trim(), name);
  });
}

test("offsets of every zone equal those of Intl, in any order of calls", (t) => {
  const zones = new Zones();
  const random = createRandom(5);
  const utc = createFormat("UTC");
  const wrong: string[] = [];
  for (const name of Intl.supportedValuesOf("timeZone")) {
    const zone = zones.get(name);
    const format = createFormat(name);
    for (const year of [2011, 2026, 2012, 2024, 2027]) {
      for (let count = 0; count < 8; count += 1) {
        const unixMs = between(random, Date.UTC(year), Date.UTC(year + 1) - 1);
        const wallMs = unixMs + zone.offsetMinutesAt(unixMs) * 60_000;
        if (format.format(unixMs) !== utc.format(wallMs)) wrong.push(`${name} at ${iso(unixMs)}`);
      }
    }
  }
  t.deepEqual(wrong, []);
});

function createFormat(timeZone: string): Intl.DateTimeFormat {
  return new Intl.DateTimeFormat("en-US", { timeZone, dateStyle: "short", timeStyle: "medium" });
}

test("spans follow each other without gaps, over more years than are cached", (t) => {
  const zone = new Zones().get("Europe/Berlin");
  const lastMs = Date.UTC(2035);
  let [spans, changes] = [0, 0];
  for (let atMs = Date.UTC(2005); atMs < lastMs;) {
    const span = zone.spanAt(atMs);
    t.true(span.startMs <= atMs && atMs < span.endMs);
    t.is(zone.spanAt(span.endMs - 1), span);
    t.true(span.skippedMs === 0 || span.startMs === atMs, "a gap is where its span starts");
    spans += 1;
    if (span.offsetMs !== zone.spanAt(span.endMs).offsetMs) changes += 1;
    atMs = span.endMs;
  }
  t.is(changes, 60);
  t.is(spans, 90);
});

test("spans state what a change repeats and skips", (t) => {
  const zone = new Zones().get("Australia/Lord_Howe");
  const summer = zone.spanAt(Date.UTC(2026, 0));
  const winter = zone.spanAt(Date.UTC(2026, 5));
  const nextSummer = zone.spanAt(Date.UTC(2026, 11));
  t.is(iso(summer.endMs), "2026-04-04T15:00:00.000Z");
  t.is(iso(summer.repeatFromMs), "2026-04-04T14:30:00.000Z");
  t.is(iso(winter.repeatUntilMs), "2026-04-04T15:30:00.000Z");
  t.is(winter.skippedMs, 0);
  t.is(iso(nextSummer.startMs), "2026-10-03T15:30:00.000Z");
  t.is(nextSummer.skippedMs, 30 * 60_000);
  t.is(nextSummer.repeatUntilMs, nextSummer.startMs);
});

function iso(unixMs: number): string {
  return new Date(unixMs).toISOString();
}
