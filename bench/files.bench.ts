/**
 * Files of the host over the daemon's socket, each compared with a system tool: a download and an upload with `curl`
 * with plain `node:http`, a listing as a stream with `ls -la`, a copy of many files with `cp -a`. Written data is
 * synced to the disk on both sides if svc does so. `SVC_BENCH_TINY=1` runs it with little data.
 */
import { randomFillSync } from "node:crypto";
import { mkdir, open, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { FileService } from "../gen/svc/v1/file_pb.ts";
import { ChildServer } from "./support/child-server.ts";
import { startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { runProgram } from "./support/processes.ts";
import type { Bench, Result } from "./support/result.ts";
import { median, timeMs } from "./support/statistics.ts";

const isTiny = process.env["SVC_BENCH_TINY"] === "1";
const runs = isTiny ? 3 : 5;
const totalBytes = isTiny ? 64 * 1024 ** 2 : 1024 ** 3;
const listedEntries = isTiny ? 10_000 : 100_000;
const copiedFiles = isTiny ? 1_000 : 10_000;
const filesOfDirectory = 500;
const blockBytes = 1024 ** 2;
const pageEntries = 2_000;

export const bench: Bench = {
  name: "files",
  async run() {
    await using daemon = await startDaemon();
    const file = join(daemon.dir, "file.bin");
    await writeRandom(file, totalBytes);
    return [
      await measureDownload(daemon, file),
      await measureUpload(daemon, file),
      await measureListing(daemon),
      await measureCopy(daemon),
    ];
  },
};

async function measureDownload(daemon: BenchDaemon, file: string): Promise<Result> {
  await using bare = await ChildServer.start("bare-server.ts", join(daemon.dir, "bare.sock"), file, "stream");
  const get = ({ socket }: { socket: string }) => curl(socket, contentPath(file), "-o", "/dev/null");
  const { measuredMs, yardstickMs } = await inTurn(
    () => get(daemon),
    () => get(bare),
  );
  return {
    what: `download of ${inMiB(totalBytes)} with \`curl\``,
    measured: `${measuredMs.toFixed(0)} ms`,
    yardstick: `\`fs.createReadStream\` piped by \`node:http\` ${yardstickMs.toFixed(0)} ms`,
    value: yardstickMs / measuredMs,
    goal: 0.9,
    isFloor: true,
    unit: "×",
    runs,
  };
}

async function measureUpload(daemon: BenchDaemon, file: string): Promise<Result> {
  const [taken, bareTaken] = [join(daemon.dir, "taken"), join(daemon.dir, "bare-taken")];
  await using bare = await ChildServer.start(
    ...(["bare-server.ts", join(daemon.dir, "bare.sock"), bareTaken, "take"] as const),
  );
  const put = ({ socket }: { socket: string }, path: string) =>
    curl(socket, contentPath(path), "-T", file, "-H", "content-type: application/octet-stream");
  const { measuredMs, yardstickMs } = await inTurn(
    () => put(daemon, taken),
    () => put(bare, bareTaken),
    () => Promise.all([taken, bareTaken].map((path) => rm(path, { force: true }))),
  );
  return {
    what: `upload of ${inMiB(totalBytes)} with \`curl\``,
    measured: `${measuredMs.toFixed(0)} ms`,
    yardstick: `\`node:http\` piped to a file, fsync ${yardstickMs.toFixed(0)} ms`,
    value: yardstickMs / measuredMs,
    goal: 0.8,
    isFloor: true,
    unit: "×",
    runs,
  };
}

async function measureListing(daemon: BenchDaemon): Promise<Result> {
  const dir = join(daemon.dir, "many");
  await mkdir(dir);
  for (let number = 0; number < listedEntries; number++)
    await writeFile(join(dir, `entry-${number}.txt`), "");
  const files = createClient(
    FileService,
    createConnectTransport({
      ...{ baseUrl: "http://localhost", httpVersion: "1.1", useBinaryFormat: true },
      nodeOptions: { socketPath: daemon.socket },
    }),
  );
  const list = async () => {
    let listed = 0;
    for await (const page of files.streamDirectory({ path: dir, limit: pageEntries })) {
      listed += page.entries.length;
    }
    if (listed !== listedEntries) throw new Error(`${listed} entries`);
  };
  const { measuredMs, yardstickMs } = await inTurn(list, () =>
    runProgram("sh", "-c", 'exec ls -la "$1" > /dev/null', "sh", dir),
  );
  await rm(dir, { recursive: true });
  return {
    what: `listing of ${listedEntries.toLocaleString("en")} entries as a stream, parsed`,
    measured: `${measuredMs.toFixed(0)} ms`,
    yardstick: `\`ls -la\` ${yardstickMs.toFixed(0)} ms`,
    value: measuredMs / yardstickMs,
    goal: 1.5,
    unit: "×",
    runs,
  };
}

async function measureCopy(daemon: BenchDaemon): Promise<Result> {
  const [from, to] = [join(daemon.dir, "tree"), join(daemon.dir, "copy")];
  const fileBytes = Math.floor(totalBytes / copiedFiles);
  for (let number = 0; number < copiedFiles; number++) {
    const dir = join(from, String(Math.floor(number / filesOfDirectory)));
    if (number % filesOfDirectory === 0) await mkdir(dir, { recursive: true });
    await writeRandom(join(dir, `file-${number}`), fileBytes);
  }
  const copy = () =>
    curl(
      ...[daemon.socket, "/v1/files/copy", "-H", "content-type: application/json"],
      ...["-d", JSON.stringify({ from, to })],
    );
  const { measuredMs, yardstickMs } = await inTurn(
    copy,
    () => runProgram("cp", "-a", from, to),
    () => rm(to, { recursive: true, force: true }),
  );
  return {
    what: `copy of ${inMiB(totalBytes)} in ${copiedFiles.toLocaleString("en")} files`,
    measured: `${measuredMs.toFixed(0)} ms`,
    yardstick: `\`cp -a\` ${yardstickMs.toFixed(0)} ms`,
    value: measuredMs / yardstickMs,
    goal: 1.3,
    unit: "×",
    runs,
  };
}

/**
 * Both in turn, each after `before`, so that other load affects both alike; one round more than counts. Pending writes
 * of earlier runs are synced before the next.
 */
async function inTurn(
  measured: () => Promise<unknown>,
  yardstick: () => Promise<unknown>,
  before?: () => Promise<unknown>,
): Promise<{ measuredMs: number; yardstickMs: number }> {
  const times: Record<"measured" | "yardstick", number[]> = { measured: [], yardstick: [] };
  for (let round = -1; round < runs; round++) {
    for (const [name, work] of [
      ["measured", measured],
      ["yardstick", yardstick],
    ] as const) {
      if (before !== undefined) {
        await before();
        await runProgram("sync");
      }
      const ms = await timeMs(work);
      if (round >= 0) times[name].push(ms);
    }
  }
  await before?.();
  return { measuredMs: median(times.measured), yardstickMs: median(times.yardstick) };
}

function curl(socket: string, path: string, ...options: readonly string[]): Promise<string> {
  return runProgram(
    ...["curl", "--silent", "--show-error", "--fail-with-body", "--unix-socket", socket],
    ...[...options, `http://localhost${path}`],
  );
}

function contentPath(path: string): string {
  return `/v1/files/content?${new URLSearchParams({ path }).toString()}`;
}

function inMiB(bytes: number): string {
  return `${bytes / 1024 ** 2} MiB`;
}

async function writeRandom(path: string, bytes: number): Promise<void> {
  const block = randomFillSync(Buffer.alloc(Math.min(blockBytes, bytes)));
  await using file = await open(path, "w");
  for (let left = bytes; left > 0; left -= block.length)
    await file.write(block, 0, Math.min(left, block.length));
}
