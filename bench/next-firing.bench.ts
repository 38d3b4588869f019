/**
 * The cost of scheduling: the next firing compared with cron-parser and croner, including zones, and one minute of many
 * jobs.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { CronExpressionParser } from "cron-parser";
import { Cron } from "croner";
import { isDue, viewMinute } from "../src/triggers/matcher.ts";
import { nextFiring } from "../src/triggers/next-firing.ts";
import { TriggerParser, type Trigger } from "../src/triggers/trigger.ts";
import { Zones } from "../src/triggers/zone.ts";
import { amount, type Bench, type Result } from "./support/result.ts";
import { median } from "./support/statistics.ts";
import { parseTrigger } from "../test/scheduler/support/parse-trigger.ts";

const runs = 15;
/** Calls of each of the three in every run, with a multiple for ours: it would be too short to measure. */
const questions = 240;
const ourShare = 100;
const jobCount = 100_000;

const texts = [
  "* * * * *",
  "*/5 * * * *",
  "17 * * * *",
  "30 2 * * *",
  "15 3 * * 0",
  "0 9-17/2 * * 1-5",
  "0 0 1 * *",
  "5,35 4 1,15 * *",
  "0 12 13 * 5",
  "0 0 1 1 *",
];
const zoneNames = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];

interface Question {
  text: string;
  zone: string;
  afterMs: number;
}

export const bench: Bench = {
  name: "next-firing",
  async run() {
    return [...compareNext(), ...compareParsing(), ...measureMinute()];
  },
};

function compareNext(): Result[] {
  const zones = new Zones();
  const asked = createQuestions().map(({ text, zone, afterMs }) => ({
    trigger: parseTrigger(text),
    zone: zones.get(zone),
    afterMs,
    date: new Date(afterMs),
    expression: CronExpressionParser.parse(text, { tz: zone }),
    cron: new Cron(text, { timezone: zone, paused: true }),
  }));
  const costs = measure({
    ours: () => {
      for (const { trigger, zone, afterMs } of asked) nextFiring(trigger, zone, afterMs);
    },
    cronParser: () => {
      for (const { expression, date } of asked) {
        expression.reset(date);
        expression.next();
      }
    },
    croner: () => {
      for (const { cron, date } of asked) cron.nextRun(date);
    },
  });
  return compared("next firing of a parsed trigger", amount(costs.ours, "µs"), costs);
}

function compareParsing(): Result[] {
  const zones = new Zones();
  const parser = new TriggerParser();
  const asked = createQuestions();
  const costs = measure({
    ours: () => {
      for (const { text, zone, afterMs } of asked) nextFiring(parser.parse(text), zones.get(zone), afterMs);
    },
    cronParser: () => {
      for (const { text, zone, afterMs } of asked) {
        CronExpressionParser.parse(text, { tz: zone, currentDate: new Date(afterMs) }).next();
      }
    },
    croner: () => {
      for (const { text, zone, afterMs } of asked) {
        new Cron(text, { timezone: zone, paused: true }).nextRun(new Date(afterMs));
      }
    },
  });
  const startedAt = process.cpuUsage();
  for (const { text } of asked) parseTrigger(text);
  const aloneUs = spentUs(startedAt) / questions;
  const measured = `${amount(costs.ours, "µs")} (one text, parsed by cron-parser: ${amount(aloneUs, "µs")})`;
  return compared("parsing many triggers, and their next firing", measured, costs);
}

function compared(
  what: string,
  measured: string,
  costs: Record<"ours" | "cronParser" | "croner", number>,
): Result[] {
  return [
    {
      what,
      measured,
      yardstick: `cron-parser ${amount(costs.cronParser, "µs")}`,
      value: costs.cronParser / costs.ours,
      goal: 100,
      isFloor: true,
      unit: "×",
      runs,
    },
    {
      what,
      measured,
      yardstick: `croner ${amount(costs.croner, "µs")}`,
      value: costs.croner / costs.ours,
      goal: 10,
      isFloor: true,
      unit: "×",
      runs,
    },
  ];
}

function measureMinute(): Result[] {
  const zone = new Zones().get("Europe/Berlin");
  const parser = new TriggerParser();
  const before = heapMib();
  const triggers = Array.from({ length: jobCount }, (_, at) =>
    parser.parse(`${at % 60} ${Math.floor(at / 60) % 24} * * ${Math.floor(at / 1440) % 7}`),
  );
  const heap = heapMib() - before;
  const [ordinary, gap] = [Date.UTC(2026, 5, 1, 12, 30), Date.UTC(2026, 2, 29, 1)].map((unixMs) => {
    const costs: number[] = [];
    for (let run = 0; run < runs; run += 1) {
      const startedAt = process.cpuUsage();
      countDue(triggers, zone, unixMs);
      costs.push(spentUs(startedAt) / 1000);
    }
    return median(costs);
  });
  return [
    {
      what: `which of ${jobCount} jobs are due in a minute`,
      measured: `${amount(ordinary ?? NaN, "ms")} of processor time`,
      yardstick: "none",
      value: ordinary ?? NaN,
      goal: 5,
      unit: "ms",
      runs,
    },
    {
      what: "the same right after the clock has skipped an hour",
      measured: `${amount(gap ?? NaN, "ms")} of processor time`,
      yardstick: "none",
      value: gap ?? NaN,
      goal: 20,
      unit: "ms",
      runs,
    },
    {
      what: `memory of ${jobCount} triggers with their texts`,
      measured: `${Math.round((heap * 2 ** 20) / jobCount)} bytes each`,
      yardstick: "none",
      value: heap,
      goal: 16,
      unit: "MiB",
      runs: 1,
    },
  ];
}

function countDue(triggers: readonly Trigger[], zone: ReturnType<Zones["get"]>, unixMs: number): number {
  const view = viewMinute(zone, unixMs);
  let due = 0;
  for (const trigger of triggers) if (isDue(trigger, view)) due += 1;
  return due;
}

/** Every text in every zone, at instants spread over a year. */
function createQuestions(): Question[] {
  return Array.from({ length: questions }, (_, at) => ({
    text: texts[at % texts.length] ?? "",
    zone: zoneNames[Math.floor(at / texts.length) % zoneNames.length] ?? "",
    afterMs: Date.UTC(2026, 0, 1, 0, 0, 30) + Math.floor((at * 365 * 86_400_000) / questions),
  }));
}

/** Median CPU time per call in microseconds; all three in turn, so that other load affects all. */
function measure(works: Record<"ours" | "cronParser" | "croner", () => void>): typeof costs {
  const samples = { ours: [] as number[], cronParser: [] as number[], croner: [] as number[] };
  for (let run = -2; run < runs; run += 1) {
    for (const name of ["ours", "cronParser", "croner"] as const) {
      const repeats = name === "ours" ? ourShare : 1;
      const startedAt = process.cpuUsage();
      for (let repeat = 0; repeat < repeats; repeat += 1) works[name]();
      if (run >= 0) samples[name].push(spentUs(startedAt) / (questions * repeats));
    }
  }
  const costs = {
    ours: median(samples.ours),
    cronParser: median(samples.cronParser),
    croner: median(samples.croner),
  };
  return costs;
}

function spentUs(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return user + system;
}

function heapMib(): number {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
  return process.memoryUsage().heapUsed / 2 ** 20;
}
