/** The evaluator with a fake clock: steps both ways, suspends, daylight saving, a whole year. */
import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import type { Run } from "../../../src/scheduler/runs/run.ts";
import { Evaluation, everyMinute, job, minuteText, type EvaluationOptions } from "../support/evaluation.ts";

const [secondMs, minuteMs, hourMs, dayMs] = [1_000, 60_000, 3_600_000, 86_400_000];
const yearMs = 365 * dayMs;
const start = "2026-01-15T10:00:30Z";
const minutely = [job("minutely", "* * * * *")];

test("each minute is evaluated once, at its start, without drift, however often the clock is read", async (t) => {
  await using evaluation = new Evaluation({ start, jobs: minutely });
  evaluation.clock.pass(1_000 * minuteMs);
  t.deepEqual(evaluation.minutes(), everyMinute("2026-01-15T10:01", "2026-01-16T02:40"));
  t.true(evaluation.fired.every(({ atMs }) => atMs % minuteMs === 0));
  t.deepEqual(evaluation.skipped, []);
});

interface StepCase {
  name: string;
  /** Created at 10:05:30. */
  stepMs: number;
  /** Then 10:05:30 and the step are observed for this long. */
  thenMs: number;
  fired: string[];
  late?: { count: number; last: string };
}

const steps: StepCase[] = [
  {
    name: "ahead by 1 minute",
    stepMs: minuteMs,
    thenMs: 5 * secondMs,
    fired: ["2026-01-15T10:06"],
  },
  {
    name: "ahead by 6 minutes: the five missed ones and the current one",
    stepMs: 6 * minuteMs,
    thenMs: 5 * secondMs,
    fired: everyMinute("2026-01-15T10:06", "2026-01-15T10:11"),
  },
  {
    name: "ahead by 7 minutes: the oldest is too late",
    stepMs: 7 * minuteMs,
    thenMs: 5 * secondMs,
    fired: everyMinute("2026-01-15T10:07", "2026-01-15T10:12"),
    late: { count: 1, last: "2026-01-15T10:06" },
  },
  {
    name: "ahead by 1 h",
    stepMs: hourMs,
    thenMs: 5 * secondMs,
    fired: everyMinute("2026-01-15T11:00", "2026-01-15T11:05"),
    late: { count: 54, last: "2026-01-15T10:59" },
  },
  {
    name: "ahead by 4 h",
    stepMs: 4 * hourMs,
    thenMs: 5 * secondMs,
    fired: everyMinute("2026-01-15T14:00", "2026-01-15T14:05"),
    late: { count: 234, last: "2026-01-15T13:59" },
  },
  {
    name: "ahead by a year",
    stepMs: yearMs,
    thenMs: 5 * secondMs,
    fired: everyMinute("2027-01-15T10:00", "2027-01-15T10:05"),
    late: { count: 365 * 24 * 60 - 6, last: "2027-01-15T09:59" },
  },
  {
    name: "back within the minute",
    stepMs: -29 * secondMs,
    thenMs: 20 * secondMs,
    fired: [],
  },
  {
    name: "back by 2 minutes: completed minutes are not repeated",
    stepMs: -2 * minuteMs,
    thenMs: 3 * minuteMs,
    fired: ["2026-01-15T10:06"],
  },
  {
    name: "back by 1 h: minutes from before the start never ran",
    stepMs: -hourMs,
    thenMs: 61 * minuteMs,
    fired: [...everyMinute("2026-01-15T09:05", "2026-01-15T09:59"), "2026-01-15T10:06"],
  },
  {
    name: "back by 4 h: the mark is reset to now",
    stepMs: -4 * hourMs,
    thenMs: 2 * minuteMs,
    fired: everyMinute("2026-01-15T06:05", "2026-01-15T06:07"),
  },
  {
    name: "back by a year",
    stepMs: -yearMs,
    thenMs: 2 * minuteMs,
    fired: everyMinute("2025-01-15T10:05", "2025-01-15T10:07"),
  },
];

for (const { name, stepMs, thenMs, fired, late } of steps) {
  test(`the clock is set ${name}`, async (t) => {
    await using evaluation = new Evaluation({ start, jobs: minutely });
    evaluation.clock.pass(5 * minuteMs);
    const before = evaluation.fired.length;
    evaluation.clock.step(stepMs);
    evaluation.clock.pass(thenMs);
    await eventuallyIdle(evaluation);
    t.deepEqual(evaluation.minutes().slice(before), fired);
    t.deepEqual(evaluation.skipped, late ? [{ id: "minutely", reason: "late", ...late }] : []);
  });
}

for (const [hours, isSuppressed] of [
  [1, true],
  [3, true],
  [4, false],
] as const) {
  test(`after a day of running, a clock set back by ${hours} h ${isSuppressed ? "repeats nothing" : "starts again"}`, async (t) => {
    await using evaluation = new Evaluation({ start, jobs: minutely });
    evaluation.clock.pass(dayMs);
    const before = evaluation.fired.length;
    evaluation.clock.step(-hours * hourMs);
    evaluation.clock.pass(hours * hourMs);
    t.is(evaluation.fired.length - before, isSuppressed ? 0 : hours * 60 + 1);
    evaluation.clock.pass(10 * minuteMs);
    t.is(evaluation.fired.length - before, (isSuppressed ? 0 : hours * 60 + 1) + 10);
    t.deepEqual(evaluation.skipped, []);
  });
}

for (const [name, newest, fired] of [
  ["a little", "2026-01-15T10:02", ["other 2026-01-15T10:01", "minutely 2026-01-15T10:03"]],
  [
    "3 h",
    "2026-01-15T13:00",
    ["other 2026-01-15T10:01", "minutely 2026-01-15T10:02", "minutely 2026-01-15T10:03"],
  ],
  [
    "more than 3 h",
    "2026-01-15T13:01",
    [
      "minutely 2026-01-15T10:01",
      "other 2026-01-15T10:01",
      "minutely 2026-01-15T10:02",
      "minutely 2026-01-15T10:03",
    ],
  ],
] as const) {
  test(`after a clock that was ahead by ${name}, the next daemon ${fired.length < 4 ? "does not repeat" : "repeats"} the firings`, async (t) => {
    const jobs = [...minutely, job("other", "1 10 * * *")];
    const onRecord = ["minutely 2026-01-15T10:01", `minutely ${newest}`];
    await using evaluation = new Evaluation({ start, jobs, onRecord });
    evaluation.clock.pass(3 * minuteMs);
    await eventuallyIdle(evaluation);
    t.deepEqual(
      evaluation.fired.map(({ id, minuteMs: atMs }) => `${id} ${minuteText(atMs)}`),
      [...fired],
    );
  });
}

for (const [name, stepMs] of [
  ["an hour ahead and back", hourMs],
  ["a year ahead and back", yearMs],
  ["a year back and ahead", -yearMs],
] as const) {
  test(`a clock that is off by some seconds, ${name}, repeats no minute and skips none`, async (t) => {
    await using evaluation = new Evaluation({ start, jobs: minutely });
    evaluation.clock.pass(5 * minuteMs);
    evaluation.clock.step(stepMs);
    evaluation.clock.pass(6 * secondMs);
    evaluation.clock.step(-stepMs);
    evaluation.clock.pass(5 * minuteMs);
    const here = evaluation
      .minutes()
      .filter((minute) => minute < "2026-01-15T10:30" && minute > "2026-01-15T09");
    t.deepEqual(here, everyMinute("2026-01-15T10:01", "2026-01-15T10:10"));
  });
}

test("after a suspend of 30 minutes five minutes are caught up on, within 5 s", async (t) => {
  await using evaluation = new Evaluation({ start, jobs: [...minutely, job("quarterly", "*/15 * * * *")] });
  evaluation.clock.pass(minuteMs);
  evaluation.clock.step(30 * minuteMs);
  const wokeAtMs = evaluation.clock.nowMs();
  evaluation.clock.pass(5 * secondMs);
  await eventuallyIdle(evaluation);
  t.deepEqual(evaluation.minutes("minutely").slice(1), everyMinute("2026-01-15T10:26", "2026-01-15T10:31"));
  t.deepEqual(evaluation.minutes("quarterly"), ["2026-01-15T10:30"]);
  t.true(evaluation.fired.slice(1).every(({ atMs }) => atMs <= wokeAtMs + 5 * secondMs));
  t.deepEqual(evaluation.skipped, [
    { id: "minutely", reason: "late", count: 24, last: "2026-01-15T10:25" },
    { id: "quarterly", reason: "late", count: 1, last: "2026-01-15T10:15" },
  ]);
});

interface ChangeCase {
  name: string;
  trigger: string;
  start: string;
  zone: string;
  fired: string[];
}

const changes: ChangeCase[] = [
  {
    name: "a fixed time in the gap fires once right after it",
    trigger: "30 2 * * *",
    start: "2026-03-28T12:00:00Z",
    zone: "Europe/Berlin",
    fired: ["2026-03-29T01:00", "2026-03-30T00:30"],
  },
  {
    name: "a fixed time in the gap and one right after it are one firing",
    trigger: "0,30 2,3 * * *",
    start: "2026-03-28T23:30:00Z",
    zone: "Europe/Berlin",
    fired: [
      "2026-03-29T01:00",
      "2026-03-29T01:30",
      "2026-03-30T00:00",
      "2026-03-30T00:30",
      "2026-03-30T01:00",
    ],
  },
  {
    name: "a wildcard follows the clock over the gap",
    trigger: "*/30 * * * *",
    start: "2026-03-29T00:00:00Z",
    zone: "Europe/Berlin",
    fired: ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"],
  },
  {
    name: "a fixed time in the repeated hour fires once, the first time",
    trigger: "30 2 * * *",
    start: "2026-10-24T12:00:00Z",
    zone: "Europe/Berlin",
    fired: ["2026-10-25T00:30", "2026-10-26T01:30"],
  },
  {
    name: "a wildcard fires in both",
    trigger: "30 * * * *",
    start: "2026-10-24T23:45:00Z",
    zone: "Europe/Berlin",
    fired: ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"],
  },
  {
    name: "half an hour is repeated",
    trigger: "45 1 * * *",
    start: "2026-04-04T00:00:00Z",
    zone: "Australia/Lord_Howe",
    fired: ["2026-04-04T14:45", "2026-04-05T15:15"],
  },
];

for (const { name, trigger, start: from, zone, fired } of changes) {
  for (const isLocal of [true, false]) {
    test(`daylight saving in ${zone}${isLocal ? " as the node's own zone" : ""}: ${name}`, async (t) => {
      const jobs = [job("j", trigger, { timeZone: isLocal ? "" : zone })];
      await using evaluation = new Evaluation({ start: from, jobs, ...(isLocal && { localZone: zone }) });
      const lastMs = Date.parse(`${fired.at(-1) ?? ""}:30Z`);
      evaluation.clock.pass(lastMs - evaluation.clock.nowMs());
      t.deepEqual(evaluation.minutes(), fired);
    });
  }
}

test("a job that is added, changed or removed counts from the next minute on", async (t) => {
  const [a, b, c] = [job("a", "* * * * *"), job("b", "* * * * *"), job("c", "* * * * *")];
  await using evaluation = new Evaluation({ start, jobs: [a, c] });
  evaluation.clock.pass(minuteMs);
  evaluation.setJobs([a, b, c]);
  evaluation.clock.pass(minuteMs);
  evaluation.setJobs([job("a", "* * * * *", { enabled: false }), b, job("c", "0 0 1 1 *")]);
  evaluation.clock.pass(minuteMs);
  evaluation.setJobs([b]);
  evaluation.clock.pass(minuteMs);
  evaluation.setJobs([]);
  evaluation.clock.pass(minuteMs);
  t.deepEqual(
    evaluation.fired.map(({ id, minuteMs: atMs }) => `${id} ${minuteText(atMs).slice(-5)}`),
    ["a 10:01", "c 10:01", "a 10:02", "b 10:02", "c 10:02", "b 10:03", "b 10:04"],
  );
});

interface CatchUpCase extends Pick<EvaluationOptions, "jobs"> {
  name: string;
  settledUntil?: string;
  fired: string[];
  skipped?: { id: string; count: number; last: string }[];
}

const daily = (changes: Parameters<typeof job>[2] = {}) => [
  job("daily", "04:00", { catchUp: "latest", ...changes }),
];

/** The newest scheduled run of each job, started on time. */
const runAt = (time: string): Run => ({
  id: 1,
  number: 1,
  job: { ownerUid: 0, id: "any" },
  trigger: "schedule",
  attempt: 1,
  scheduledAtMs: Date.parse(time),
  startedAtMs: Date.parse(time),
});

test("retries of the previous daemon are found, unless the job fired since", async (t) => {
  const jobs = [
    job("daily", "04:00", { retries: 1 }),
    job("hourly", "hourly", { retries: 1 }),
    job("half", "*/30 * * * *", { retries: 1 }),
    job("off", "04:00", { retries: 1, enabled: false }),
    job("none", "04:00"),
    job("fresh", "04:00", { retries: 1 }),
  ];
  const four = runAt("2026-01-15T04:00:00Z");
  const lastRuns = {
    daily: four,
    hourly: runAt("2026-01-15T10:00:00Z"),
    half: four,
    off: four,
    none: four,
  };
  await using evaluation = new Evaluation({ start, jobs, lastRuns });
  await nextTurn();
  t.deepEqual(evaluation.resumed, ["daily", "hourly"]);
});

test("pending firings are found, unless they started or the job is younger", async (t) => {
  const jobs = [
    job("quarters", "*/15 * * * *", { jitterSecs: 1_800 }),
    job("started", "*/15 * * * *", { jitterSecs: 1_800 }),
    job("young", "*/15 * * * *", { jitterSecs: 1_800, updatedAt: "2026-01-15T10:20:00Z" }),
    job("before", "10:00", { jitterSecs: 1_800 }),
    job("off", "10:29", { jitterSecs: 1_800, enabled: false }),
    job("none", "*/15 * * * *"),
  ];
  const lastRuns = {
    started: runAt("2026-01-15T10:15:00Z"),
    quarters: runAt("2026-01-15T09:45:00Z"),
  };
  await using evaluation = new Evaluation({ start: "2026-01-15T10:30:30Z", jobs, lastRuns });
  await nextTurn();
  t.deepEqual(evaluation.resumedStarts.toSorted(), [
    "quarters 2026-01-15T10:15",
    "quarters 2026-01-15T10:30",
    "started 2026-01-15T10:30",
    "young 2026-01-15T10:30",
  ]);
  t.deepEqual(evaluation.fired, []);
});

const catchUps: CatchUpCase[] = [
  {
    name: "the newest of three runs, two are counted",
    jobs: daily(),
    settledUntil: "2026-01-12T10:00:00Z",
    fired: ["2026-01-15T04:00"],
    skipped: [{ id: "daily", count: 2, last: "2026-01-14T04:00" }],
  },
  { name: "nothing was missed", jobs: daily(), settledUntil: "2026-01-15T04:00:00Z", fired: [] },
  {
    name: "the minute of the start counts as missed",
    jobs: [job("m", "* * * * *", { catchUp: "latest" })],
    settledUntil: "2026-01-15T09:59:00Z",
    fired: ["2026-01-15T10:00"],
  },
  {
    name: "unless it was settled",
    jobs: [job("m", "* * * * *", { catchUp: "latest" })],
    settledUntil: "2026-01-15T10:00:00Z",
    fired: [],
  },
  {
    name: "not beyond seven days",
    jobs: [job("old", "0 12 7 1 *", { catchUp: "latest" }), job("new", "0 12 9 1 *", { catchUp: "latest" })],
    settledUntil: "2026-01-01T00:00:00Z",
    fired: ["2026-01-09T12:00"],
  },
  {
    name: "not for a job that does not want it",
    jobs: daily({ catchUp: "none" }),
    settledUntil: "2026-01-12T10:00:00Z",
    fired: [],
  },
  {
    name: "not for a disabled job",
    jobs: daily({ enabled: false }),
    settledUntil: "2026-01-12T10:00:00Z",
    fired: [],
  },
  {
    name: "not from before the job was written",
    jobs: daily({ updatedAt: "2026-01-15T05:00:00Z" }),
    settledUntil: "2026-01-12T10:00:00Z",
    fired: [],
  },
  {
    name: "a record in the future has no effect",
    jobs: daily(),
    settledUntil: "2027-01-01T00:00:00Z",
    fired: [],
  },
  {
    name: "without a record since the job was written, within seven days",
    jobs: daily({ updatedAt: "2026-01-13T05:00:00Z" }),
    fired: ["2026-01-15T04:00"],
    skipped: [{ id: "daily", count: 1, last: "2026-01-14T04:00" }],
  },
  {
    name: "a firing whose jitter may be pending is the newest firing as usual",
    jobs: [job("j", "*/15 * * * *", { jitterSecs: 1_800, catchUp: "latest" })],
    settledUntil: "2026-01-15T09:30:00Z",
    fired: ["2026-01-15T10:00"],
    skipped: [{ id: "j", count: 1, last: "2026-01-15T09:45" }],
  },
];

for (const { name, jobs, settledUntil, fired, skipped = [] } of catchUps) {
  test(`catching up: ${name}`, async (t) => {
    await using evaluation = new Evaluation({
      start,
      jobs,
      ...(settledUntil !== undefined && { settledUntil }),
    });
    await eventuallyIdle(evaluation);
    t.deepEqual(
      evaluation.resumedStarts.map((start) => start.split(" ")[1]),
      fired,
    );
    t.deepEqual(evaluation.fired, []);
    t.deepEqual(
      evaluation.skipped,
      skipped.map((skip) => ({ reason: "down", ...skip })),
    );
  });
}

test("after a suspend a job with catch-up runs for the newest missed firing", async (t) => {
  const jobs = [job("caught", "0 * * * *", { catchUp: "latest" }), job("lost", "0 * * * *")];
  await using evaluation = new Evaluation({ start, jobs, settledUntil: start });
  evaluation.clock.pass(minuteMs);
  evaluation.clock.step(3 * hourMs + 30 * minuteMs);
  evaluation.clock.pass(minuteMs);
  await eventuallyIdle(evaluation);
  t.deepEqual(
    evaluation.fired.map(({ id, minuteMs: atMs }) => `${id} ${minuteText(atMs)}`),
    ["caught 2026-01-15T13:00"],
  );
  t.deepEqual(evaluation.skipped, [
    { id: "caught", reason: "late", count: 2, last: "2026-01-15T12:00" },
    { id: "lost", reason: "late", count: 3, last: "2026-01-15T13:00" },
  ]);
});

test("policy backups are evaluated each minute, and each failure is logged separately", async (t) => {
  const passes: number[] = [];
  const backups = {
    run: (atMs: number) => {
      passes.push(atMs);
      return passes.length === 2
        ? Promise.reject(new Error("no storage"))
        : Promise.resolve([
            { app: "a", error: new Error("full") },
            { app: "b", error: new Error("gone") },
          ]);
    },
  };
  await using evaluation = new Evaluation({ start, jobs: minutely, backups });
  evaluation.clock.pass(2 * minuteMs);
  await eventuallyIdle(evaluation);
  t.deepEqual(passes, [Date.parse("2026-01-15T10:01Z"), Date.parse("2026-01-15T10:02Z")]);
  t.deepEqual(evaluation.errors, [
    "a policy backup failed",
    "a policy backup failed",
    "failed to run the policy backups of a minute",
  ]);
  t.is(evaluation.fired.length, 2, "jobs are not affected");
});

/** Work in slices of the event loop is done. */
async function eventuallyIdle(evaluation: Evaluation): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  if (evaluation.fired.length > 1e6) throw new Error("fires endlessly");
}
