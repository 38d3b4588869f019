/** The cost of an idle svc: the daemon, and one app's supervisor. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type BenchDaemon, startDaemon } from "./support/daemon.ts";
import { bareNodeMemoryMib, memoryMib } from "./support/processes.ts";
import { type Bench, amount } from "./support/result.ts";
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
    let weights: { pss: number }[];
    const pids: number[] = [];
    try {
      for (const id of ids) {
        await daemon.svc("install", dir);
        await daemon.svc("app", "start", id);
        pids.push(await supervisorPid(daemon, id));
      }
      await sleep(settleMs);
      weights = await Promise.all(pids.map(memoryMib));
    } finally {
      // They would survive the daemon.
      await daemon.svc("app", "stop", ...ids);
    }
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

async function supervisorPid(daemon: BenchDaemon, id: string): Promise<number> {
  const file = join(daemon.storeDir, "run", id, "state.json");
  const state = JSON.parse(await readFile(file, "utf8")) as { supervisor: { pid: number } };
  return state.supervisor.pid;
}
