/**
 * Backups in buckets of real S3 servers: the cost of a second bucket, the memory of a large backup, and the cost of
 * reading one file.
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startFaultProxy } from "../../test/support/fault-proxy.ts";
import { hasS3Server, startS3Server, type S3Server } from "../../test/support/s3-server.ts";
import { startDaemon, type BenchDaemon } from "./daemon.ts";
import { writeMixed } from "./mixed-files.ts";
import { runBareNode, runProgram } from "./processes.ts";
import { amount, type Result } from "./result.ts";
import { compareMs, percentile } from "./statistics.ts";
import { statusLatencies } from "./status-latencies.ts";
import { peakMemoryMib, treeMemoryMib } from "./tree-memory.ts";

const isTiny = process.env["SVC_BENCH_TINY"] === "1";
const mib = 1024 ** 2;
const runs = isTiny ? 2 : 5;
const bothBytes = (isTiny ? 144 : 576) * mib;
const smallBytes = 100 * mib;
const largeGib = isTiny ? 1 : 10;
/** The tar part of a frame. */
const frameBytes = 4 * mib;
const settleMs = 10_000;
const quietRequests = 500;

/** One read and one compression, whatever the number of storages is. */
export async function measureTwoBuckets(): Promise<Result[]> {
  if (!hasS3Server) return [];
  await using one = await startS3Server();
  await using two = await startS3Server();
  await using daemon = await startWith("bulky", bothBytes, isTiny ? 5_000 : 20_000);
  await addBucket(daemon, "one", one);
  await addBucket(daemon, "two", two);
  const create = ["backup", "create", "bulky", "--keep", "1", "--storage", "one"];
  const { measuredMs, yardstickMs } = await compareMs(
    runs,
    () => daemon.svc(...create, "--storage", "two"),
    () => daemon.svc(...create),
  );
  return [
    {
      what: `backup of ${bothBytes / mib} MB to two buckets at once`,
      measured: `${measuredMs.toFixed(0)} ms`,
      yardstick: `to one ${yardstickMs.toFixed(0)} ms`,
      value: measuredMs / yardstickMs,
      goal: 1.2,
      unit: "×",
      runs,
    },
  ];
}

/**
 * The memory of a backup is constant, other clients do not notice it, and reading one file downloads only its frames.
 */
export async function measureLarge(): Promise<Result[]> {
  if (!hasS3Server) return [];
  await using server = await startS3Server();
  await using proxy = await startFaultProxy(server.port);
  await using daemon = await startWith("small", smallBytes, 2_000);
  await install(daemon, "large", largeGib * 1024 * mib, 20_000);
  await addBucket(daemon, "far", server);
  await addBucket(daemon, "counted", server, proxy.endpoint);
  await sleep(settleMs);
  const idleMib = await treeMemoryMib(daemon.pid);
  const quiet = await statusLatencies(daemon, (taken) => taken < quietRequests);
  const smallMib = await peakMemoryMib(daemon.pid, daemon.svc(...toBucket("small")));
  const work = { isDone: false };
  const backup = daemon.svc(...toBucket("large")).finally(() => (work.isDone = true));
  const [largeMib, busy] = await Promise.all([
    peakMemoryMib(daemon.pid, backup),
    statusLatencies(daemon, () => !work.isDone),
  ]);
  const busyMs = percentile(busy, 0.99);
  const size = `${largeGib} GB`;
  return [
    {
      what: `daemon and its processes, above idle, in a backup of ${size} to a bucket (PSS)`,
      measured: amount(largeMib - idleMib, "MiB"),
      yardstick: `idle ${amount(idleMib, "MiB")}`,
      value: largeMib - idleMib,
      goal: 200,
      unit: "MiB",
      runs: 1,
    },
    {
      what: `all of their memory at ${size}`,
      measured: amount(largeMib, "MiB"),
      yardstick: `at 100 MB ${amount(smallMib, "MiB")}`,
      value: largeMib / smallMib,
      goal: 1.15,
      unit: "×",
      runs: 1,
    },
    {
      what: `status, p99, during the backup of ${size}`,
      measured: amount(busyMs, "ms"),
      yardstick: `idle ${amount(percentile(quiet, 0.99), "ms")}`,
      value: busyMs,
      goal: 25,
      unit: "ms",
      runs: busy.length,
    },
    ...(await measureOneFile(daemon, proxy)),
  ];
}

async function measureOneFile(
  daemon: BenchDaemon,
  counted: { readonly sentBytes: number },
): Promise<Result[]> {
  const listed = JSON.parse(await daemon.svc("backup", "ls", "large", "--json")) as {
    backups: { storage: string; size_bytes: string }[];
  };
  const stored = Number(listed.backups.find(({ storage }) => storage === "far")?.size_bytes ?? NaN);
  const storedFrameBytes = stored / ((largeGib * 1024 * mib) / frameBytes);
  const get = (storage: string): Promise<string> =>
    daemon.svc("backup", "get", "large", "latest", "data/small/7/777.bin", "--storage", storage);
  const before = counted.sentBytes;
  await get("counted");
  const traffic = counted.sentBytes - before;
  const { measuredMs, yardstickMs } = await compareMs(runs, () => get("far"), runBareNode);
  return [
    {
      what: `one file of a backup of ${largeGib} GB in a bucket`,
      measured: amount(measuredMs, "ms"),
      yardstick: `\`node -e 0\` ${amount(yardstickMs, "ms")}`,
      value: measuredMs,
      goal: 1_000,
      unit: "ms",
      runs,
    },
    {
      what: "what the bucket sends for it, beside a frame",
      measured: amount(traffic / mib, "MiB"),
      yardstick: `a frame ${amount(storedFrameBytes / mib, "MiB")}`,
      value: traffic / storedFrameBytes,
      goal: 3,
      unit: "×",
      runs: 1,
    },
  ];
}

const toBucket = (id: string): string[] => ["backup", "create", id, "--keep", "1", "--storage", "far"];

async function startWith(id: string, bytes: number, smallFiles: number): Promise<BenchDaemon> {
  const daemon = await startDaemon();
  await install(daemon, id, bytes, smallFiles);
  return daemon;
}

async function install(daemon: BenchDaemon, id: string, bytes: number, smallFiles: number): Promise<void> {
  await daemon.svc("install", await daemon.writePackage(id, "setInterval(() => {}, 1e6);\n"));
  await writeMixed(join(daemon.storeDir, "apps", id, "data"), bytes, smallFiles);
  await runProgram("sync");
}

async function addBucket(
  daemon: BenchDaemon,
  name: string,
  server: S3Server,
  endpoint = server.endpoint,
): Promise<void> {
  const secretFile = join(daemon.dir, "secret");
  await writeFile(secretFile, server.secretKey);
  await daemon.svc(
    ...["backup", "storage", "add", name, "--s3", endpoint, "--bucket", server.bucket],
    ...["--access-key", server.accessKey, "--secret-key-file", secretFile],
  );
}
