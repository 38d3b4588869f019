/** The downtime of a restart: from the start to the first response with a large store. */
import { startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { addHistory } from "./support/long-history.ts";
import { fillStore } from "./support/many-apps.ts";
import { runBareNode } from "./support/processes.ts";
import type { Bench, Result } from "./support/result.ts";
import { median, timeMs } from "./support/statistics.ts";

const runs = 15;
const [apps, jobs, records] = [1_000, 10_000, 50_000];

export const bench: Bench = {
  name: "daemon-start",
  async run() {
    await using daemon = await startDaemon();
    await fillStore(daemon, apps);
    const withApps = await measureStart(daemon, `${amountOf(apps)} apps`, 5);
    await addHistory(daemon, { jobs, records });
    const what = `the same with ${amountOf(jobs)} jobs and ${amountOf(records)} audit records`;
    return [withApps, await measureStart(daemon, what, 6)];
  },
};

/** The daemon must be stopped, and stays stopped. */
async function measureStart(daemon: BenchDaemon, what: string, goal: number): Promise<Result> {
  const [starts, yardsticks]: [number[], number[]] = [[], []];
  for (let round = 0; round < runs; round += 1) {
    starts.push(await timeMs(() => daemon.start()));
    await daemon.stop();
    yardsticks.push(await timeMs(runBareNode));
  }
  const [startMs, yardstickMs] = [median(starts), median(yardsticks)];
  return {
    what: `start to first response, ${what}`,
    measured: `${startMs.toFixed(0)} ms`,
    yardstick: `\`node -e 0\` ${yardstickMs.toFixed(1)} ms`,
    value: startMs / yardstickMs,
    goal,
    unit: "×",
    runs,
  };
}

function amountOf(count: number): string {
  return count.toLocaleString("en");
}
