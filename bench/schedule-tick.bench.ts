/** The cost of a minute for a daemon with 100,000 jobs: CPU time of the event loop, its longest slice, and memory. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { SlicedWork } from "../src/lib/sliced-work.ts";
import { DueTable } from "../src/scheduler/clock/due-table.ts";
import type { Job } from "../src/scheduler/jobs/job.ts";
import { isDue, viewMinute } from "../src/triggers/matcher.ts";
import { TriggerParser } from "../src/triggers/trigger.ts";
import { Zones } from "../src/triggers/zone.ts";
import { amount, type Bench } from "./support/result.ts";
import { median } from "./support/statistics.ts";

const jobCount = 100_000;
const minuteMs = 60_000;
const runs = 120;
/** As the evaluator's. */
const budgetMs = 4;
const firstMs = Date.UTC(2026, 2, 28, 22);
const zoneNames = ["", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"];

interface Tick {
  totalMs: number;
  longestSliceMs: number;
  due: number;
}

export const bench: Bench = {
  name: "schedule-tick",
  async run() {
    const jobs = createJobs();
    const zones = new Zones({ local: () => "Europe/Berlin" });
    const table = new DueTable(zones);
    await inSlices(table.fill(jobs), () => 0);
    let edited: readonly Job[] = jobs;
    const editMs: number[] = [];
    for (let run = 0; run < runs; run += 1) {
      edited = edited.with(run * 50, { ...edited[run * 50]!, enabled: false });
      editMs.push((await inSlices(table.fill(edited), () => 0)).totalMs);
    }

    const ticks: Tick[] = [];
    const plainMs: number[] = [];
    const allocated: number[] = [];
    const collectGarbage = exposeGarbageCollector();
    for (let run = 0; run < runs; run += 1) {
      const atMs = firstMs + run * minuteMs;
      let due = 0;
      const usedBytes = process.memoryUsage().heapUsed;
      ticks.push(
        await inSlices(
          table.pass(atMs, () => (due += 1)),
          () => due,
        ),
      );
      const grownBytes = process.memoryUsage().heapUsed - usedBytes;
      // A run with a garbage collection does not count.
      if (grownBytes >= 0) allocated.push(grownBytes);
      const startedAt = processorMs();
      const wanted = edited.filter(
        (job) =>
          job.enabled && isDue(job.trigger, viewMinute(zones.get(job.timeZone || "Europe/Berlin"), atMs)),
      ).length;
      plainMs.push(processorMs() - startedAt);
      if (wanted !== due) throw new Error(`${due} jobs were due instead of ${wanted}`);
    }
    collectGarbage();
    const beforeBytes = process.memoryUsage().heapUsed;
    for (let run = 0; run < 1_000; run += 1)
      await inSlices(
        table.pass(firstMs + run * minuteMs, () => undefined),
        () => 0,
      );
    collectGarbage();
    const keptBytes = process.memoryUsage().heapUsed - beforeBytes;

    const totalMs = median(ticks.map((tick) => tick.totalMs));
    const longestMs = Math.max(...ticks.map((tick) => tick.longestSliceMs));
    const worst = ticks.reduce((most, tick) => (tick.totalMs > most.totalMs ? tick : most));
    const due = median(ticks.map((tick) => tick.due));
    const yardstick = `each job asked by itself ${amount(median(plainMs), "ms")}`;
    return [
      {
        what: `a minute of ${jobCount} jobs, ${due} of them due: event loop`,
        measured: amount(totalMs, "ms"),
        yardstick,
        value: totalMs,
        goal: 100,
        unit: "ms",
        runs,
      },
      {
        what: `the worst minute, ${worst.due} of them due; the first computes all next firings`,
        measured: amount(worst.totalMs, "ms"),
        yardstick,
        value: worst.totalMs,
        goal: 100,
        unit: "ms",
        runs,
      },
      {
        what: "the longest slice of all minutes",
        measured: amount(longestMs, "ms"),
        yardstick,
        value: longestMs,
        goal: 10,
        unit: "ms",
        runs,
      },
      {
        what: "memory that it allocates",
        measured: `${(median(allocated) / 1024).toFixed(0)} KiB; kept after 1,000 minutes ${(keptBytes / 1024).toFixed(0)} KiB`,
        yardstick: "none",
        value: Math.max(keptBytes, 0) / 2 ** 20,
        goal: 0.5,
        unit: "MiB",
        runs,
      },
      {
        what: "the table after one of the jobs was edited",
        measured: amount(median(editMs), "ms"),
        yardstick,
        value: median(editMs),
        goal: 20,
        unit: "ms",
        runs,
      },
    ];
  },
};

/**
 * Runs work like the evaluator, and returns the event loop's part of it in CPU time, because other programs run here,
 * too.
 */
async function inSlices(work: Generator<undefined, void>, countDue: () => number): Promise<Tick> {
  const slices: number[] = [];
  const finished = Promise.withResolvers<undefined>();
  function* whole(): Generator<undefined, void> {
    yield* work;
    finished.resolve(undefined);
  }
  const sliced = new SlicedWork({ budgetMs, monotonicMs: () => performance.now(), onError: finished.reject });
  let startedAt = processorMs();
  sliced.add(whole());
  slices.push(processorMs() - startedAt);
  while (sliced.isBusy) {
    startedAt = processorMs();
    await new Promise((resolve) => setImmediate(resolve));
    slices.push(processorMs() - startedAt);
  }
  await finished.promise;
  return {
    totalMs: slices.reduce((sum, slice) => sum + slice, 0),
    longestSliceMs: Math.max(...slices),
    due: countDue(),
  };
}

/** Of this thread. */
function processorMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

function createJobs(): Job[] {
  const parser = new TriggerParser();
  return Array.from({ length: jobCount }, (_, at) => {
    const [minute, hour] = [((at * 7919) >> 4) % 60, ((at * 7907) >> 5) % 24];
    const texts = [
      "*/5 * * * *",
      `${minute} * * * *`,
      `${minute} ${hour} * * *`,
      `${minute} ${hour} * * ${at % 7}`,
      `${minute} */2 1-15 * *`,
      `${minute} ${hour} ${(at % 28) + 1} * *`,
    ];
    return {
      ownerUid: at % 10,
      ownerName: "",
      id: `job-${String(at).padStart(6, "0")}`,
      trigger: parser.parse(texts[at % texts.length] ?? "hourly"),
      timeZone: zoneNames[at % zoneNames.length] ?? "",
      enabled: true,
      comment: "",
      managedBy: "",
      action: { type: "shell", command: "true" },
      timeoutSecs: 600,
      jitterSecs: 0,
      retries: 0,
      catchUp: "none",
      updatedAtMs: 0,
      revision: at,
    } satisfies Job;
  }).sort((a, b) => a.ownerUid - b.ownerUid || (a.id < b.id ? -1 : 1));
}

function exposeGarbageCollector(): () => void {
  setFlagsFromString("--expose-gc");
  return runInNewContext("gc") as () => void;
}
