/** How long a restart leaves the host without its daemon: start to first answer with many apps installed. */
import { startDaemon } from "./support/daemon.ts";
import { fillStore } from "./support/many-apps.ts";
import { runBareNode } from "./support/processes.ts";
import type { Bench } from "./support/result.ts";
import { median, timeMs } from "./support/statistics.ts";

const runs = 15;
const apps = 1_000;

export const bench: Bench = {
  name: "daemon-start",
  async run() {
    await using daemon = await startDaemon();
    await fillStore(daemon, apps);
    const [starts, yardsticks]: [number[], number[]] = [[], []];
    for (let round = 0; round < runs; round += 1) {
      starts.push(await timeMs(() => daemon.start()));
      await daemon.stop();
      yardsticks.push(await timeMs(runBareNode));
    }
    const [startMs, yardstickMs] = [median(starts), median(yardsticks)];
    return [
      {
        what: `start to first answer, ${apps.toLocaleString("en")} apps`,
        measured: `${startMs.toFixed(0)} ms`,
        yardstick: `\`node -e 0\` ${yardstickMs.toFixed(1)} ms`,
        value: startMs / yardstickMs,
        goal: 5,
        unit: "×",
        runs,
      },
    ];
  },
};
