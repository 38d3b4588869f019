/** Archives against tar and zstd, which know of no checksums and no index, and against restic, which has both. */
import { randomFillSync } from "node:crypto";
import { mkdir, open, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { runProgram } from "./support/processes.ts";
import type { Bench, Result } from "./support/result.ts";
import { compareMs } from "./support/statistics.ts";

const runs = 5;
const totalBytes = 576 * 1024 ** 2;
const smallFiles = 20_000;
const smallBytes = 8 * 1024;
const largeBytes = 64 * 1024 ** 2;
/** Of each file so much cannot be compressed. */
const randomShare = 0.4;

/** Text and noise in turns, in many small files and a few large ones. */
async function writeMixed(dir: string): Promise<void> {
  const block = Buffer.alloc(1024 ** 2, "All work and no play makes Jack a dull boy. ");
  for (let at = 0; at < block.length; at += 4096) {
    randomFillSync(block, at, Math.floor(4096 * randomShare));
  }
  for (let number = 0; number < smallFiles; number += 1) {
    const folder = join(dir, "small", String(number % 200));
    await mkdir(folder, { recursive: true });
    const at = (number * 4096) % (block.length - smallBytes);
    await writeFile(join(folder, `${number}.bin`), block.subarray(at, at + smallBytes));
  }
  let left = totalBytes - smallFiles * smallBytes;
  for (let number = 0; left > 0; number += 1) {
    await using file = await open(join(dir, `large-${number}.bin`), "w");
    for (let written = 0; written < largeBytes && left > 0; written += block.length, left -= block.length) {
      randomFillSync(block, 0, 4096);
      await file.write(block, 0, Math.min(block.length, left));
    }
  }
}

function shell(cwd: string, script: string): Promise<string> {
  return runProgram("sh", "-c", `cd "$1" && ${script}`, "sh", cwd);
}

async function hasRestic(): Promise<boolean> {
  return runProgram("restic", "version").then(
    () => true,
    () => false,
  );
}

async function measureRestic(daemon: BenchDaemon, appDir: string): Promise<Result[]> {
  if (!(await hasRestic())) return [];
  const repository = join(daemon.dir, "restic");
  const { measuredMs, yardstickMs } = await compareMs(
    runs,
    () => daemon.svc("backup", "create", "bulky", "--keep", "1"),
    async () => {
      await rm(repository, { recursive: true, force: true });
      await shell(
        appDir,
        `export RESTIC_PASSWORD=bench RESTIC_CACHE_DIR="${repository}-cache" && restic init -q -r "${repository}" && restic backup -q -r "${repository}" .`,
      );
    },
  );
  return [
    {
      what: "backup of 576 MB, beside restic",
      measured: `${measuredMs.toFixed(0)} ms`,
      yardstick: `\`restic backup\`, new repository ${yardstickMs.toFixed(0)} ms`,
      value: yardstickMs / measuredMs,
      goal: 2,
      isFloor: true,
      unit: "×",
      runs,
    },
  ];
}

export const bench: Bench = {
  name: "backups",
  async run() {
    await using daemon = await startDaemon();
    await daemon.svc("install", await daemon.writePackage("bulky", "setInterval(() => {}, 1e6);\n"));
    const appDir = join(daemon.storeDir, "apps/bulky");
    await writeMixed(join(appDir, "data"));
    await runProgram("sync");
    const file = join(daemon.dir, "plain.tar.zst");
    const create = await compareMs(
      runs,
      () => daemon.svc("backup", "create", "bulky", "--keep", "1"),
      () => shell(appDir, `tar c repo data volumes | zstd -q -f -3 -T0 -o "${file}" && sync "${file}"`),
    );
    const target = join(daemon.dir, "restored");
    const restore = await compareMs(
      runs,
      () => daemon.svc("backup", "restore", "bulky", "latest", "--yes"),
      async () => {
        await rm(target, { recursive: true, force: true });
        await mkdir(target);
        await shell(target, `zstd -dcq "${file}" | tar x`);
      },
    );
    return [
      {
        what: "backup of 576 MB in 20,000 files, hashed",
        measured: `${create.measuredMs.toFixed(0)} ms`,
        yardstick: `\`tar c | zstd -3 -T0\` ${create.yardstickMs.toFixed(0)} ms`,
        value: create.measuredMs / create.yardstickMs,
        goal: 1.05,
        unit: "×",
        runs,
      },
      {
        what: "restore of it, every checksum compared",
        measured: `${restore.measuredMs.toFixed(0)} ms`,
        yardstick: `\`zstd -d | tar x\` ${restore.yardstickMs.toFixed(0)} ms`,
        value: restore.measuredMs / restore.yardstickMs,
        goal: 1.25,
        unit: "×",
        runs,
      },
      ...(await measureRestic(daemon, appDir)),
    ];
  },
};
