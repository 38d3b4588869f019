/** A clone compared with a plain copy of the same files. */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { writeBulk } from "./support/bulk.ts";
import { startDaemon } from "./support/daemon.ts";
import { runProgram } from "./support/processes.ts";
import type { Bench } from "./support/result.ts";
import { median, timeMs } from "./support/statistics.ts";

const runs = 7;
const bulkBytes = 512 * 1024 ** 2;

export const bench: Bench = {
  name: "clone",
  async run() {
    await using daemon = await startDaemon();
    await daemon.svc("install", await daemon.writePackage("bulky", "setInterval(() => {}, 1e6);\n"));
    const appDir = join(daemon.storeDir, "apps/bulky");
    await writeBulk(join(appDir, "data"), bulkBytes);
    const [clones, copies]: [number[], number[]] = [[], []];
    for (let round = -1; round < runs; round += 1) {
      const cloneMs = await timeMs(() => daemon.svc("app", "clone", "bulky"));
      await daemon.svc("app", "remove", "--yes", "bulky-2");
      const copy = join(daemon.dir, "copy");
      const copyMs = await timeMs(() => runProgram("cp", "-a", "--reflink=auto", appDir, copy));
      await rm(copy, { recursive: true });
      // The remaining work of the removal must not affect the next round.
      await runProgram("sync");
      if (round < 0) continue;
      clones.push(cloneMs);
      copies.push(copyMs);
    }
    const [cloneMs, copyMs] = [median(clones), median(copies)];
    return [
      {
        what: "clone of 512 MiB in 2,000 files",
        measured: `${cloneMs.toFixed(0)} ms`,
        yardstick: `\`cp -a --reflink=auto\` ${copyMs.toFixed(0)} ms`,
        value: cloneMs / copyMs,
        goal: 1.2,
        unit: "×",
        runs,
      },
    ];
  },
};
