/** Prints one supervisor's memory (proportional set size) while 20 apps run. `node bench/supervisor-memory.ts` */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { SupervisorState } from "../src/runtimes/process/supervisor-types.ts";
import { Fixture } from "../test/runtimes/support/fixture.ts";

const appCount = 20;
const goalMib = 14;

await using fixture = await Fixture.create();
const apps = await Promise.all(
  Array.from({ length: appCount }, () => fixture.shell("echo hello; exec sleep 1000")),
);
for (const app of apps) await fixture.runtime.start(app);
await sleep(2000);
const sizesKib = await Promise.all(
  apps.map(async ({ runDir }) => {
    const { supervisor } = JSON.parse(await readFile(join(runDir, "state.json"), "utf8")) as SupervisorState;
    const rollup = await readFile(`/proc/${supervisor.pid}/smaps_rollup`, "latin1");
    return Number(/^Pss:\s+(\d+) kB/m.exec(rollup)?.[1]);
  }),
);
const meanMib = sizesKib.reduce((sum, kib) => sum + kib, 0) / appCount / 1024;
console.log(`supervisor with ${appCount} apps running: ${meanMib.toFixed(1)} MiB PSS each (goal ${goalMib})`);
