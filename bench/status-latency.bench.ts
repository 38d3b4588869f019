/** Whether heavy work delays other clients: status requests while an install and a clone of 2 GB run. */
import { join } from "node:path";
import { startDaemon } from "./support/daemon.ts";
import { writeBulk } from "./support/bulk.ts";
import type { Bench } from "./support/result.ts";
import { percentile } from "./support/statistics.ts";
import { statusLatencies } from "./support/status-latencies.ts";

const bulkBytes = 2 * 1024 ** 3;
const quietRequests = 500;

export const bench: Bench = {
  name: "status-latency",
  async run() {
    await using daemon = await startDaemon();
    const dir = await daemon.writePackage("bulky", "setInterval(() => {}, 1e6);\n");
    await daemon.svc("install", dir);
    await writeBulk(join(daemon.storeDir, "apps/bulky/data"), bulkBytes);

    const quiet = await statusLatencies(daemon, (taken) => taken < quietRequests);
    const work = { isDone: false };
    const heavy = Promise.all([daemon.svc("app", "clone", "bulky"), daemon.svc("install", dir)]).finally(
      () => {
        work.isDone = true;
      },
    );
    const [busy] = await Promise.all([statusLatencies(daemon, () => !work.isDone), heavy]);
    const [busyMs, quietMs] = [percentile(busy, 0.99), percentile(quiet, 0.99)];
    return [
      {
        what: "status, p99, while an install and a 2 GB clone run",
        measured: `${busyMs.toFixed(1)} ms`,
        yardstick: `idle ${quietMs.toFixed(1)} ms`,
        value: busyMs,
        goal: 25,
        unit: "ms",
        runs: busy.length,
      },
    ];
  },
};
