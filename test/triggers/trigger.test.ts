/**
 * The valid triggers, and the errors of all others. Times as cron, systemd, Quartz and other schedulers write
 * them: each fires as it does there, or is rejected with advice.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import fc from "fast-check";
import { SvcError } from "../../src/errors.ts";
import {
  newTriggerProblem,
  TriggerParser,
  triggerProblem,
  type Trigger,
} from "../../src/triggers/trigger.ts";
import { parseTrigger } from "../scheduler/support/parse-trigger.ts";
import { readFile } from "node:fs/promises";
import { nextFiring } from "../../src/triggers/next-firing.ts";
import { Zones } from "../../src/triggers/zone.ts";

/** The five fields written out, and the kind. */
const accepted: [text: string, cron: string, kind: Trigger["kind"]][] = [
  ["hourly", "0 * * * *", "wildcard"],
  ["daily@00:00", "0 0 * * *", "fixed"],
  ["daily@23:59", "59 23 * * *", "fixed"],
  ["07:05", "5 7 * * *", "fixed"],
  ["7:05", "5 7 * * *", "fixed"],
  ["daily@7:05", "5 7 * * *", "fixed"],
  [" 07:05\t", "5 7 * * *", "fixed"],
  ["* * * * *", "* * * * *", "wildcard"],
  ["30 2 * * *", "30 2 * * *", "fixed"],
  ["05 007 01 02 03", "5 7 1 2 3", "fixed"],
  ["  0 \t 4\t1  1  0 ", "0 4 1 1 0", "fixed"],
  ["10-14 9-10 * * *", "10,11,12,13,14 9,10 * * *", "fixed"],
  ["5-5 0 * * *", "5 0 * * *", "fixed"],
  ["30,1,2 3,2 * * *", "1,2,30 2,3 * * *", "fixed"],
  ["1,1,1-3,2-4 0 * * *", "1,2,3,4 0 * * *", "fixed"],
  ["*/20 0 * * *", "0,20,40 0 * * *", "wildcard"],
  ["0 */6 * * *", "0 0,6,12,18 * * *", "wildcard"],
  ["*/60 0 * * *", "0 0 * * *", "wildcard"],
  ["10-30/10,59 0 * * *", "10,20,30,59 0 * * *", "fixed"],
  ["30-31 0 * * *", "30,31 0 * * *", "fixed"],
  ["5,* 0 * * *", "* 0 * * *", "wildcard"],
  ["0 0 31 * *", "0 0 31 * *", "fixed"],
  ["0 0 30 2 *", "0 0 30 2 *", "fixed"],
  ["0 0 */10 * *", "0 0 1,11,21,31 * *", "fixed"],
  ["0 0 * 1-12/4 *", "0 0 * 1,5,9 *", "fixed"],
  ["0 0 * * 7", "0 0 * * 0", "fixed"],
  ["0 0 * * 0,7", "0 0 * * 0", "fixed"],
  ["0 0 * * 5-7", "0 0 * * 0,5,6", "fixed"],
  ["0 0 * * 0-7", "0 0 * * *", "fixed"],
  ["0 0 * * 1-7/3", "0 0 * * 0,1,4", "fixed"],
  ["0 0 * * */7", "0 0 * * 0", "fixed"],
  ["0 0 * * */3", "0 0 * * 0,3,6", "fixed"],
];

for (const [text, cron, kind] of accepted) {
  test(`${JSON.stringify(text)} is ${cron}`, (t) => {
    const trigger = parseTrigger(text);
    t.is(writeOut(trigger), cron);
    t.is(trigger.kind, kind);
    t.is(trigger.text, text);
    t.is(triggerProblem(text), undefined);
  });
}

const anyForm =
  'is not valid: use hourly, HH:MM, @daily, "every 15m", "mon 03:00", on:EVENT or five cron fields ("30 2 * * mon-fri")';
const notFive = (count: number): string =>
  `has ${count} fields instead of five, without seconds and years: minute hour day-of-month month day-of-week`;

const refused: [text: string, description: string][] = [
  ["", `"" ${anyForm}`],
  [" \t ", `" \t " ${anyForm}`],
  ["*", `"*" ${anyForm}`],
  ["1*2*3*4*5", `"1*2*3*4*5" ${anyForm}`],
  ["0\u00a00 * * *", `"0\u00a00 * * *" ${notFive(4)}`],
  [
    "every day",
    '"every day" is not valid: write an interval that divides an hour or a day, such as "every 15m" or "every 2h", or a time such as daily@09:00',
  ],
  ["* * * *", `"* * * *" ${notFive(4)}`],
  ["0 * * * * *", `"0 * * * * *" ${notFive(6)}`],
  ["0 0 1 1 * 2026", `"0 0 1 1 * 2026" ${notFive(6)}`],
  ["07:5", 'time "07:5" must be HH:MM, such as 07:05'],
  [":", 'time ":" must be HH:MM, such as 07:05'],
  ["24:00", 'time "24:00" must be 00:00 to 23:59'],
  ["23:60", 'time "23:60" must be 00:00 to 23:59'],
  ["daily@", 'time "" must be HH:MM, such as 07:05'],
  ["daily@7", 'time "7" must be HH:MM, such as 07:05'],
  ["daily@07:05:00", 'time "07:05:00" must be HH:MM, such as 07:05'],
  ["daily@24:00", 'time "24:00" must be 00:00 to 23:59'],
  ["60 * * * *", 'minute "60" must be 0 to 59'],
  ["* 24 * * *", 'hour "24" must be 0 to 23'],
  ["* 20-24 * * *", 'hour "24" must be 0 to 23'],
  ["* * 0 * *", 'day-of-month "0" must be 1 to 31'],
  ["* * 32 * *", 'day-of-month "32" must be 1 to 31'],
  ["* * * 13 *", 'month "13" must be 1 to 12'],
  ["* * * * 8", 'day-of-week "8" must be 0 to 7'],
  ["* * * * 99999999999999999999", 'day-of-week "99999999999999999999" must be 0 to 7'],
  ["5-1 * * * *", 'minute range "5-1" must not run backwards: use two ranges, as in "5-59,0-1"'],
  ["* * * * 6-1", 'day-of-week range "6-1" must not run backwards: use two ranges, as in "6-7,0-1"'],
  ["*/0 * * * *", 'minute step "*/0" must be at least 1'],
  ["0-9/00 * * * *", 'minute step "0-9/00" must be at least 1'],
  ["5/10 * * * *", 'minute "5/10" must have a range before its step: use "5-59/10"'],
  ["0 1/2 * * *", 'hour "1/2" must have a range before its step: use "1-23/2"'],
  ["1,,2 * * * *", 'minute "1,,2" has an empty list item'],
  [", * * * *", 'minute "," has an empty list item'],
  ["1, 2 * * *", 'minute "1," has an empty list item'],
  ["* * * jax *", `month "jax" ${itemRule(1, 12)}`],
  ["* * * * MOO-FRI", `day-of-week "MOO-5" ${itemRule(0, 7)}`],
  ["-1 * * * *", `minute "-1" ${itemRule(0, 59)}`],
  ["1- * * * *", `minute "1-" ${itemRule(0, 59)}`],
  ["1-2-3 * * * *", `minute "1-2-3" ${itemRule(0, 59)}`],
  ["*-5 * * * *", `minute "*-5" ${itemRule(0, 59)}`],
  ["*5 * * * *", `minute "*5" ${itemRule(0, 59)}`],
  ["** * * * *", `minute "**" ${itemRule(0, 59)}`],
  ["*/ * * * *", `minute "*/" ${itemRule(0, 59)}`],
  ["*/2/2 * * * *", `minute "*/2/2" ${itemRule(0, 59)}`],
  ["*/1.5 * * * *", `minute "*/1.5" ${itemRule(0, 59)}`],
  ["1e1 * * * *", `minute "1e1" ${itemRule(0, 59)}`],
  ["0x5 * * * *", `minute "0x5" ${itemRule(0, 59)}`],
  ["+5 * * * *", `minute "+5" ${itemRule(0, 59)}`],
  ["٣ * * * *", `minute "٣" ${itemRule(0, 59)}`],
  ["0\n0 * * * *", `minute "0\n0" ${itemRule(0, 59)}`],
  ["0 0 * * *\n", `day-of-week "*\n" ${itemRule(0, 7)}`],
  ["* * * * *\0", `day-of-week "*\0" ${itemRule(0, 7)}`],
  [`${"1,".repeat(128)}1 * * * *`, "265 characters are too many: at most 256"],
];

function itemRule(min: number, max: number): string {
  return `must be made of numbers ${min} to ${max}, "*", ranges "a-b", lists "a,b" and steps "*/n" or "a-b/n"`;
}

for (const [text, description] of refused) {
  test(`${JSON.stringify(text.slice(0, 40))} is rejected: ${JSON.stringify(description)}`, (t) => {
    const error = t.throws(() => parseTrigger(text), { instanceOf: SvcError });
    t.is(error.code, "invalid_argument");
    t.deepEqual(error.payload, { violations: [{ field: "trigger", description }] });
    t.is(triggerProblem(text), description);
  });
}

for (const [text, problem] of [
  ["0 0 30 2 *", "there is no 30 February"],
  ["0 0 31 2,4 *", "there is no 31 February"],
  ["0 0 31 sep-nov/2 *", "there is no 31 September"],
  ["0 0 31 4,6,9,11 *", "there is no 31 April"],
  ["0 0 30-31 2 *", "there is no 30 February"],
  ["0 0 31 2 */7", "there is no 31 February"],
] as const) {
  test(`"${text}" is rejected as a new trigger, because ${problem}`, (t) => {
    t.is(newTriggerProblem(text), `"${text}" never fires: ${problem}`);
    t.is(triggerProblem(text), undefined, "a stored trigger stays readable");
  });
}

for (const text of [
  "0 0 29 2 *",
  "0 0 29 2 */7",
  "0 0 31 2 5",
  "0 0 31 2-3 *",
  "0 0 31 * *",
  "0 0 */31 2 *",
]) {
  test(`"${text}" is accepted as a new trigger, because its date exists`, (t) => {
    t.is(newTriggerProblem(text), undefined);
  });
}

test("days: either field matches if both are restricted, which a field that starts with * is not", (t) => {
  const eitherDay = ["0 0 13 * 5", "0 0 1-31 * 5", "0 0 5,* * 5", "0 0 1 * 0-7"];
  const bothDays = ["0 0 * * 5", "0 0 13 * *", "0 0 */2 * 5", "0 0 13 * */2", "0 0 *,5 * 5"];
  t.deepEqual(
    [...eitherDay, ...bothDays].filter((text) => parseTrigger(text).isEitherDay),
    eitherDay,
  );
});

test("a parser of many triggers reads each as if it were the only one", (t) => {
  const parser = new TriggerParser();
  // More ranges than it caches.
  for (let minute = 0; minute < 60; minute += 1) {
    for (let step = 1; step <= 80; step += 1) {
      const text = `${minute}-59/${step} ${minute % 24}-23/${step} * * *`;
      t.deepEqual(parser.parse(text), parseTrigger(text));
    }
  }
});

test("cron-parser is loaded when the first range or step is read", async (t) => {
  const module = join(import.meta.dirname, "../scheduler/support/parse-trigger.ts");
  const program = `
    import { createRequire } from "node:module";
    import { parseTrigger } from ${JSON.stringify(module)};
    const { cache } = createRequire(import.meta.url);
    for (const text of ["07:05", "hourly", "0,30 7 * * 1", "0-9 * * * *"]) {
      parseTrigger(text);
      console.log(Object.keys(cache).some((file) => file.includes("/cron-parser/")));
    }`;
  const { stdout } = await promisify(execFile)(process.execPath, [
    "--input-type=module-typescript",
    "-e",
    program,
  ]);
  t.is(stdout, "false\nfalse\nfalse\ntrue\n");
});

test("any text is a trigger or has a problem, and nothing else is thrown", (t) => {
  const nearly = fc
    .array(
      fc.constantFrom("0", "9", "59", "*", "/", "-", ",", " ", "\t", ":", "@", "daily", "hourly", "L", "\0"),
      {
        maxLength: 24,
      },
    )
    .map((parts) => parts.join(""));
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: "binary" }), nearly), (text) => {
      const problem = triggerProblem(text);
      if (problem === undefined) {
        t.deepEqual(parseTrigger(parseTrigger(text).text), parseTrigger(text));
      } else {
        t.throws(() => parseTrigger(text), { instanceOf: SvcError, message: `trigger: ${problem}` });
      }
    }),
    { numRuns: 3000 },
  );
});

/** The fields of a trigger as lists of their values, `*` for all of them. */
function writeOut(trigger: Trigger): string {
  return [
    [...valuesOf(trigger.minutesLow, 0), ...valuesOf(trigger.minutesHigh, 31)]
      .join()
      .replace(listOf(0, 59), "*"),
    valuesOf(trigger.hours, 0).join().replace(listOf(0, 23), "*"),
    valuesOf(trigger.daysOfMonth, 1).join().replace(listOf(1, 31), "*"),
    valuesOf(trigger.months, 1).join().replace(listOf(1, 12), "*"),
    valuesOf(trigger.daysOfWeek, 0).join().replace(listOf(0, 6), "*"),
  ].join(" ");
}

function valuesOf(bits: number, first: number): number[] {
  return Array.from({ length: 32 }, (_, at) => at)
    .filter((at) => (bits & (1 << at)) !== 0)
    .map((at) => first + at);
}

function listOf(first: number, last: number): string {
  return Array.from({ length: last - first + 1 }, (_, at) => first + at).join();
}

test("an event is a trigger that matches no minute", (t) => {
  const parser = new TriggerParser();
  t.like(parser.parse("on:app.crashed"), {
    text: "on:app.crashed",
    event: { kind: "app.crashed", subject: "" },
    hours: 0,
  });
  t.like(parser.parse("on:backup.failed \t hello"), { event: { kind: "backup.failed", subject: "hello" } });
  for (const text of [
    "on:",
    "on:app",
    "on:run.ended",
    "on:operation.began",
    "on:reset",
    "on:app.crashed a b",
    "on: app.crashed",
  ]) {
    t.regex(
      triggerProblem(text) ?? "",
      /must be on:KIND or "on:KIND APP", where KIND is app\.installed, /,
      text,
    );
  }
  t.is(triggerProblem("on:app.crashed"), '"on:app.crashed" must be a time, not an event');
});

for (const [friendly, fields] of [
  ["@daily", "0 0 * * *"],
  ["weekly", "0 0 * * 0"],
  ["@yearly", "0 0 1 1 *"],
  ["every 15m", "*/15 * * * *"],
  ["every 2h", "0 */2 * * *"],
  ["every 24h", "0 0 * * *"],
  ["mon 03:00", "0 3 * * 1"],
  ["mon-fri 03:00", "0 3 * * 1-5"],
  ["30 2 * JAN,jul MON-FRI", "30 2 * 1,7 1-5"],
] as const) {
  test(`"${friendly}" fires as "${fields}" does`, (t) => {
    const parser = new TriggerParser();
    t.deepEqual({ ...parser.parse(friendly), text: "" }, { ...parser.parse(fields), text: "" });
    t.is(parser.parse(friendly).text, friendly);
  });
}

for (const wrong of [
  "every 7m",
  "every 0m",
  "every 5h",
  "every",
  "mon 25:00",
  "moon 03:00",
  "fortnightly",
  "@reboot",
]) {
  test(`"${wrong}" is not a trigger`, (t) => t.is(typeof new TriggerParser().read(wrong), "string"));
}

// Times as cron, systemd, Quartz and other schedulers write them.

const utc = new Zones().get("UTC");
/** A Sunday. */
const afterMs = Date.UTC(2026, 10, 29, 12);

/** The next firings after Sunday, 29 November 2026, 12:00 UTC. */
const dialectTimes: readonly [dialect: string, text: string, ...firings: string[]][] = [
  ["crontab(5)", "0 9 * * MON-FRI", "2026-11-30T09:00", "2026-12-01T09:00"],
  ["crontab(5)", "0 9 * * mon,Wed", "2026-11-30T09:00", "2026-12-02T09:00", "2026-12-07T09:00"],
  ["crontab(5)", "0 0 1 jan,JUL *", "2027-01-01T00:00", "2027-07-01T00:00"],
  ["crontab(5)", "0 0 * * 7", "2026-12-06T00:00", "2026-12-13T00:00"],
  ["crontab(5)", "0 0 * * fri-sun", "2026-12-04T00:00", "2026-12-05T00:00", "2026-12-06T00:00"],
  ["crontab(5)", "*/7 * * * *", "2026-11-29T12:07", "2026-11-29T12:14"],
  ["crontab(5)", "*/7 13 * * *", "2026-11-29T13:00", "2026-11-29T13:07"],
  ["crontab(5)", "*/90 * * * *", "2026-11-29T13:00", "2026-11-29T14:00"],
  ["crontab(5)", "0-23/2 4 * * *", "2026-11-30T04:00", "2026-11-30T04:02"],
  [
    "crontab(5)",
    "0 4 1,15 * 5",
    "2026-12-01T04:00",
    "2026-12-04T04:00",
    "2026-12-11T04:00",
    "2026-12-15T04:00",
  ],
  ["crontab(5)", "0 0 */2 * 1", "2026-12-07T00:00", "2026-12-21T00:00", "2027-01-11T00:00"],
  ["crontab(5)", "0 9 1-31 * 1", "2026-11-30T09:00", "2026-12-01T09:00"],
  ["crontab(5)", "0 0 13 * 5", "2026-12-04T00:00", "2026-12-11T00:00", "2026-12-13T00:00"],
  ["crontab(5)", "0 0 31 * *", "2026-12-31T00:00", "2027-01-31T00:00", "2027-03-31T00:00"],
  ["crontab(5)", "@hourly", "2026-11-29T13:00", "2026-11-29T14:00"],
  ["crontab(5)", "@daily", "2026-11-30T00:00", "2026-12-01T00:00"],
  ["crontab(5)", "@midnight", "2026-11-30T00:00", "2026-12-01T00:00"],
  ["crontab(5)", "@weekly", "2026-12-06T00:00", "2026-12-13T00:00"],
  ["crontab(5)", "@monthly", "2026-12-01T00:00", "2027-01-01T00:00"],
  ["crontab(5)", "@yearly", "2027-01-01T00:00", "2028-01-01T00:00"],
  ["crontab(5)", "@annually", "2027-01-01T00:00", "2028-01-01T00:00"],
  ["systemd", "daily", "2026-11-30T00:00", "2026-12-01T00:00"],
  ["systemd", "monthly", "2026-12-01T00:00", "2027-01-01T00:00"],
  ["systemd", "06:00", "2026-11-30T06:00", "2026-12-01T06:00"],
  ["systemd", "Mon 06:00", "2026-11-30T06:00", "2026-12-07T06:00"],
  ["systemd", "Mon..Fri 06:00", "2026-11-30T06:00", "2026-12-01T06:00"],
  ["systemd", "Mon,Thu 06:00", "2026-11-30T06:00", "2026-12-03T06:00"],
];

for (const [dialect, text, ...firings] of dialectTimes) {
  test(`${dialect}: "${text}" fires at ${firings.join(", ")}`, (t) => {
    const trigger = parseTrigger(text);
    let fromMs = afterMs;
    for (const expected of firings) {
      const { unixMs = 0 } = nextFiring(trigger, utc, fromMs) ?? {};
      t.is(new Date(unixMs).toISOString().slice(0, 16), expected);
      fromMs = unixMs;
    }
  });
}

const fields = "minute hour day-of-month month day-of-week";
const fiveFields = `fields instead of five, without seconds and years: ${fields}`;
const otherForm = `must be written as mon-fri 03:00, HH:MM or five cron fields: ${fields}`;
const interval =
  'is not valid: write an interval that divides an hour or a day, such as "every 15m" or "every 2h", or a time such as daily@09:00';
const spread = "is not supported: use a number, and spread the runs with the job's jitter";
const checkDate = "is not supported: run on several days, and check the date in the command";
const checkWeekday = "is not supported: run on each such weekday, and check the date in the command";

const rejected: readonly [dialect: string, text: string, problem: string][] = [
  [
    "crontab(5)",
    "@reboot",
    "@reboot is not supported: jobs run at set times; install the program as an app, which svc starts with the host",
  ],
  ["cronie", "~ 4 * * *", `minute "~" ${spread}`],
  ["cronie", "0~59 4 * * *", `minute "0~59" ${spread}`],
  [
    "crons that wrap",
    "0 22-2 * * *",
    'hour range "22-2" must not run backwards: use two ranges, as in "22-23,0-2"',
  ],
  ["Quartz", "0 0 12 * * ?", `"0 0 12 * * ?" has 6 ${fiveFields}`],
  ["Quartz", "0 0 12 1 1 ? 2027", `"0 0 12 1 1 ? 2027" has 7 ${fiveFields}`],
  ["Quartz", "0 0 ? * 1", 'day-of-month "?" is not supported: use "*"'],
  ["Quartz", "5/15 * * * *", 'minute "5/15" must have a range before its step: use "5-59/15"'],
  ["Quartz", "0 0 L * *", `day-of-month "L" ${checkDate}`],
  ["Quartz", "0 0 L-3 * *", `day-of-month "L-3" ${checkDate}`],
  ["Quartz", "0 0 15W * *", `day-of-month "15W" ${checkDate}`],
  ["Quartz", "0 0 LW * *", `day-of-month "LW" ${checkDate}`],
  ["Quartz", "0 3 * * 1#2", `day-of-week "1#2" ${checkWeekday}`],
  ["Quartz", "0 3 * * MON#2", `day-of-week "1#2" ${checkWeekday}`],
  ["Quartz", "0 3 * * 5L", `day-of-week "5L" ${checkWeekday}`],
  ["robfig/cron", "*/5 * * * * *", `"*/5 * * * * *" has 6 ${fiveFields}`],
  ["robfig/cron", "@every 90m", `"@every 90m" ${interval}`],
  ["robfig/cron", "@every 1h30m", `"@every 1h30m" ${interval}`],
  [
    "robfig/cron",
    "CRON_TZ=Europe/Berlin 0 3 * * *",
    '"CRON_TZ=Europe/Berlin" must be the time zone of the job, not part of its trigger',
  ],
  ["Kubernetes", "TZ=UTC 0 3 * * *", '"TZ=UTC" must be the time zone of the job, not part of its trigger'],
  ["Jenkins", "H * * * *", `minute "H" ${spread}`],
  ["Jenkins", "H/15 * * * *", `minute "H/15" ${spread}`],
  ["Jenkins", "H(0-29) 3 * * *", `minute "H(0-29)" ${spread}`],
  ["EventBridge", "rate(5 minutes)", `"rate(5 minutes)" has 2 ${fiveFields}`],
  ["EventBridge", "cron(0 12 * * ? *)", `"cron(0 12 * * ? *)" has 6 ${fiveFields}`],
  ["systemd", "Mon..Fri", `"Mon..Fri" ${otherForm}`],
  ["systemd", "1..5 06:00", `"1..5 06:00" ${otherForm}`],
  ["systemd", "*-*-* 03:00:00", `"*-*-* 03:00:00" ${otherForm}`],
  ["systemd", "Mon *-*-* 04:00", `"Mon *-*-* 04:00" ${otherForm}`],
  ["systemd", "2027-01-01", `"2027-01-01" ${otherForm}`],
  ["systemd", "06:00:30", `"06:00:30" ${otherForm}`],
];

for (const [dialect, text, problem] of rejected) {
  test(`${dialect}: "${text}" is rejected: ${problem}`, (t) => t.is(triggerProblem(text), problem));
}

test("the guide's forms of other programs are rejected, and its replacements are accepted", async (t) => {
  const guide = await readFile(new URL("../../docs/how-to/import-a-crontab.md", import.meta.url), "utf8");
  const rows = guide.matchAll(/^\| `([^`]+)` \|[^|]*\| `([^`]+)`/gm);
  let count = 0;
  for (const [, theirs = "", ours = ""] of rows) {
    count += 1;
    t.not(triggerProblem(theirs), undefined, theirs);
    t.is(triggerProblem(ours), undefined, ours);
  }
  t.true(count >= 8);
});
