/** What a person waits for at every command: `svc ls` over the socket against the start of Node itself. */
import { startDaemon } from "./support/daemon.ts";
import { runBareNode } from "./support/processes.ts";
import type { Bench } from "./support/result.ts";
import { compareMs } from "./support/statistics.ts";

const runs = 30;

export const bench: Bench = {
  name: "cli-start",
  async run() {
    await using daemon = await startDaemon();
    await daemon.svc("install", await daemon.writePackage("idle", "setInterval(() => {}, 1e6);\n"));
    const { measuredMs, yardstickMs } = await compareMs(runs, () => daemon.svc("ls"), runBareNode);
    return [
      {
        what: "`svc ls` over the socket",
        measured: `${measuredMs.toFixed(1)} ms`,
        yardstick: `\`node -e 0\` ${yardstickMs.toFixed(1)} ms`,
        value: measuredMs / yardstickMs,
        goal: 2,
        unit: "×",
        runs,
      },
    ];
  },
};
