/** What svc costs while it does nothing: the daemon, and one app's supervisor. */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startDaemon } from "./support/daemon.ts";
import { bareNodeMemoryMib, memoryMib, pidsWithArgument } from "./support/processes.ts";
import type { Bench } from "./support/result.ts";
import { amount } from "./support/result.ts";
import { median } from "./support/statistics.ts";

const apps = 20;
const settleMs = 10_000;

export const bench: Bench = {
  name: "memory",
  async run() {
    await using daemon = await startDaemon();
    await sleep(settleMs);
    const idle = await memoryMib(daemon.pid);
    const bare = await bareNodeMemoryMib();

    const dir = await daemon.writePackage("idle", "setInterval(() => {}, 1e6);\n");
    const ids = Array.from({ length: apps }, (_, index) => (index === 0 ? "idle" : `idle-${index + 1}`));
    for (const id of ids) {
      await daemon.svc("install", dir);
      await daemon.svc("app", "start", id);
    }
    await sleep(settleMs);
    const supervisors = await pidsWithArgument(join(daemon.storeDir, "run"));
    const weights = await Promise.all(supervisors.map(memoryMib));
    await daemon.svc("app", "stop", ...ids);
    if (weights.length !== apps) throw new Error(`${weights.length} supervisors run for ${apps} apps`);
    return [
      {
        what: "daemon, idle (RSS)",
        measured: amount(idle.rss, "MiB"),
        yardstick: `bare Node ${amount(bare.rss, "MiB")}`,
        value: idle.rss,
        goal: 90,
        unit: "MiB",
        runs: 1,
      },
      {
        what: `supervisor of one of ${apps} running apps (PSS)`,
        measured: amount(median(weights.map(({ pss }) => pss)), "MiB"),
        yardstick: `bare Node ${amount(bare.pss, "MiB")}`,
        value: median(weights.map(({ pss }) => pss)),
        goal: 14,
        unit: "MiB",
        runs: apps,
      },
    ];
  },
};
