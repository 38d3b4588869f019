/** `logs --tail 100` of an app that has logged 1 GiB, compared with `tail`: only the end may be read. */
import { mkdir, open, stat } from "node:fs/promises";
import { join } from "node:path";
import { startDaemon } from "./support/daemon.ts";
import { runProgram } from "./support/processes.ts";
import type { Bench } from "./support/result.ts";
import { compareMs } from "./support/statistics.ts";

const runs = 50;
const logBytes = 1024 ** 3;

export const bench: Bench = {
  name: "log-tail",
  async run() {
    await using daemon = await startDaemon();
    const dir = await daemon.writePackage("chatty", "setInterval(() => {}, 1e6);\n");
    await daemon.svc("install", dir);
    await daemon.svc("install", dir);
    const file = await writeLog(join(daemon.storeDir, "run/chatty/logs"));

    const answer = JSON.parse(await daemon.get("/v1/apps/chatty/logs?tail=100")) as { lines?: unknown[] };
    if (answer.lines?.length !== 100)
      throw new Error(`expected 100 lines, got ${String(answer.lines?.length)}`);
    const { measuredMs, yardstickMs } = await compareMs(
      runs,
      () => daemon.get("/v1/apps/chatty/logs?tail=100"),
      () => runProgram("tail", "-n", "100", file),
    );
    // The request's own cost: the same request for an app that never logged.
    const { measuredMs: ownMs } = await compareMs(
      runs,
      () => daemon.get("/v1/apps/chatty-2/logs?tail=100"),
      () => daemon.get("/v1/status"),
    );
    return [
      {
        what: "last 100 lines of a 1 GiB log, beyond the request's own cost",
        measured: `${measuredMs.toFixed(1)} − ${ownMs.toFixed(1)} ms`,
        yardstick: `\`tail -n 100\` ${yardstickMs.toFixed(1)} ms`,
        value: Math.max(0, measuredMs - ownMs) / yardstickMs,
        goal: 3,
        unit: "×",
        runs,
      },
    ];
  },
};

/** One log file in the format of log-files.mjs; returns its path. */
async function writeLog(dir: string): Promise<string> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const path = join(dir, `${"0".repeat(15)}.log`);
  const record =
    "2026-01-01T00:00:00.000Z o a line of ordinary length, such as servers write for each request\n";
  const block = Buffer.from(record.repeat(10_000));
  await using file = await open(path, "w", 0o600);
  for (let written = 0; written < logBytes; written += block.length) await file.write(block);
  if ((await stat(path)).size < logBytes) throw new Error("the log is shorter than it should be");
  return path;
}
