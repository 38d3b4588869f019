import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { Zones } from "../../src/triggers/zone.ts";
import { between, createRandom } from "./support/random-trigger.ts";

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

test("whatever the spelling of its name, and however many spellings are used, a zone is loaded once", (t) => {
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
