/**
 * Archives compared with tar and zstd, which have neither checksums nor an index, with restic, which has both, and with
 * age; then in buckets. `SVC_BENCH_TINY=1` runs it with little data.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { hasAge, newAgeKey } from "../test/support/age.ts";
import { measureLarge, measureTwoBuckets } from "./support/backups-in-buckets.ts";
import { startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { writeMixed } from "./support/mixed-files.ts";
import { runProgram } from "./support/processes.ts";
import type { Bench, Result } from "./support/result.ts";
import { compareMs } from "./support/statistics.ts";

const isTiny = process.env["SVC_BENCH_TINY"] === "1";
const runs = isTiny ? 2 : 5;
const megabytes = isTiny ? 144 : 576;
const smallFiles = isTiny ? 5_000 : 20_000;
const what = `backup of ${megabytes} MB in ${smallFiles.toLocaleString("en")} files`;

export const bench: Bench = {
  name: "backups",
  async run() {
    return [...(await measureHere()), ...(await measureTwoBuckets()), ...(await measureLarge())];
  },
};

/** A storage in a directory of the host. */
async function measureHere(): Promise<Result[]> {
  await using daemon = await startDaemon();
  await daemon.svc("install", await daemon.writePackage("bulky", "setInterval(() => {}, 1e6);\n"));
  const appDir = join(daemon.storeDir, "apps/bulky");
  await writeMixed(join(appDir, "data"), megabytes * 1024 ** 2, smallFiles);
  await runProgram("sync");
  const file = join(daemon.dir, "plain.tar.zst");
  return [
    await measureCreate(daemon, appDir, file),
    await measureRestore(daemon, file),
    ...(await measureRestic(daemon, appDir)),
    ...(await measureAge(daemon, appDir)),
  ];
}

async function measureCreate(daemon: BenchDaemon, appDir: string, file: string): Promise<Result> {
  const { measuredMs, yardstickMs } = await compareMs(
    runs,
    () => daemon.svc("backup", "create", "bulky", "--keep", "1"),
    () => shell(appDir, `tar c repo data volumes | zstd -q -f -3 -T0 -o "${file}" && sync "${file}"`),
  );
  return ratio(`${what}, hashed`, measuredMs, "`tar c | zstd -3 -T0`", yardstickMs, 1.15);
}

async function measureRestore(daemon: BenchDaemon, file: string): Promise<Result> {
  const target = join(daemon.dir, "restored");
  const { measuredMs, yardstickMs } = await compareMs(
    runs,
    () => daemon.svc("backup", "restore", "bulky", "latest", "--yes"),
    async () => {
      await rm(target, { recursive: true, force: true });
      await mkdir(target);
      await shell(target, `zstd -dcq "${file}" | tar x`);
    },
  );
  return ratio("restore of it, every checksum compared", measuredMs, "`zstd -d | tar x`", yardstickMs, 1.25);
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
      ...ratio(`${what}, beside restic`, measuredMs, "`restic backup`, new repository", yardstickMs, 2),
      value: yardstickMs / measuredMs,
      isFloor: true,
    },
  ];
}

/** Encrypted for a recipient, like age itself. */
async function measureAge(daemon: BenchDaemon, appDir: string): Promise<Result[]> {
  if (!hasAge) return [];
  const { recipient } = await newAgeKey(daemon.dir, "key");
  const vault = join(daemon.dir, "vault");
  await mkdir(vault, { mode: 0o700 });
  await daemon.svc("backup", "storage", "add", "vault", "--dir", vault, "--recipient", recipient);
  const file = join(daemon.dir, "plain.age");
  const { measuredMs, yardstickMs } = await compareMs(
    runs,
    () => daemon.svc("backup", "create", "bulky", "--keep", "1", "--storage", "vault"),
    () =>
      shell(
        appDir,
        `tar c repo data volumes | zstd -q -3 -T0 | age -r ${recipient} > "${file}" && sync "${file}"`,
      ),
  );
  return [ratio(`${what}, encrypted`, measuredMs, "`tar c | zstd -3 -T0 | age -r`", yardstickMs, 1.5)];
}

function ratio(of: string, measuredMs: number, yardstick: string, yardstickMs: number, goal: number): Result {
  return {
    what: of,
    measured: `${measuredMs.toFixed(0)} ms`,
    yardstick: `${yardstick} ${yardstickMs.toFixed(0)} ms`,
    value: measuredMs / yardstickMs,
    goal,
    unit: "×",
    runs,
  };
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
