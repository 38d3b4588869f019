/** Listing a host with many processes and sockets, compared with the standard programs. */
import { setTimeout as sleep } from "node:timers/promises";
import { hostSample, type HostReading } from "../src/host/metrics/host-sample.ts";
import { readFilesystems } from "../src/host/metrics/filesystems.ts";
import { KernelReader } from "../src/host/metrics/kernel-counters.ts";
import { Crowd } from "../test/support/crowd.ts";
import { startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { cpuUs, getOnce } from "./support/load.ts";
import { runProgram } from "./support/processes.ts";
import { amount, type Bench, type Result } from "./support/result.ts";
import { compareMs, median, percentile, timeMs } from "./support/statistics.ts";

const crowdSize = { processes: 2_000, sockets: 5_000 };
const rounds = 15;
const polledForMs = 20_000;
/** Five times a second. */
const pollMs = 200;
const statusPauseMs = 5;
const samples = 500;
const settleMs = 10_000;
const idleMs = 60_000;

const portsPath = "/v1/ports/listening";
const processesPath = "/v1/processes?kernelThreads=true&limit=10000";

export const bench: Bench = {
  name: "host",
  async run() {
    const sampling = await measureSample();
    await using daemon = await startDaemon();
    await sleep(settleMs);
    const idle = await measureIdle(daemon);
    await using _crowd = await Crowd.start(crowdSize);
    return [
      await measureList(
        daemon,
        `listening ports, ${crowdSize.processes} processes and ${crowdSize.sockets} sockets, warm`,
        portsPath,
        ["ss", "-ltnup"],
        0.5,
      ),
      await measureList(
        daemon,
        `list of ${crowdSize.processes} processes`,
        processesPath,
        ["ps", "aux"],
        0.8,
      ),
      await measureStatus(daemon),
      sampling,
      idle,
    ];
  },
};

async function measureList(
  daemon: BenchDaemon,
  what: string,
  path: string,
  [program = "", ...args]: readonly string[],
  goal: number,
): Promise<Result> {
  const { measuredMs, yardstickMs } = await compareMs(
    rounds,
    () => daemon.get(path),
    () => runProgram(program, ...args),
  );
  return {
    what,
    measured: amount(measuredMs, "ms"),
    yardstick: `\`${[program, ...args].join(" ")}\` ${amount(yardstickMs, "ms")}`,
    value: measuredMs / yardstickMs,
    goal,
    unit: "×",
    runs: rounds,
  };
}

async function measureStatus(daemon: BenchDaemon): Promise<Result> {
  const untilMs = performance.now() + polledForMs;
  const poll = async (path: string): Promise<void> => {
    // Separate connections: a request that takes longer than an interval does not delay the next.
    const asked: Promise<unknown>[] = [];
    while (performance.now() < untilMs) {
      asked.push(getOnce(daemon, path));
      await sleep(pollMs);
    }
    await Promise.all(asked);
  };
  const status = async (): Promise<number[]> => {
    const latencies: number[] = [];
    while (performance.now() < untilMs) {
      latencies.push(await timeMs(() => daemon.get("/v1/status")));
      await sleep(statusPauseMs);
    }
    return latencies;
  };
  const [latencies] = await Promise.all([status(), poll(portsPath), poll(processesPath)]);
  return {
    what: "status, p99, while ports and processes are requested 5 times a second each",
    measured: amount(percentile(latencies, 0.99), "ms"),
    yardstick: `median ${amount(median(latencies), "ms")}`,
    value: percentile(latencies, 0.99),
    goal: 25,
    unit: "ms",
    runs: latencies.length,
  };
}

/** The time on the event loop: the rest of a sample runs elsewhere. */
async function measureSample(): Promise<Result> {
  const kernel = new KernelReader();
  const filesystems = await readFilesystems();
  const read = (): HostReading => ({
    ...{ atMs: Date.now(), monotonicMs: performance.now(), filesystems, processes: 0 },
    counters: kernel.read(),
  });
  let before = read();
  const times: number[] = [];
  for (let n = 0; n < samples; n += 1) {
    const began = performance.now();
    const reading = read();
    JSON.stringify(hostSample(reading, before));
    times.push(performance.now() - began);
    before = reading;
  }
  return {
    what: "a sample of the host, on the event loop",
    measured: amount(median(times), "ms"),
    yardstick: `p99 ${amount(percentile(times, 0.99), "ms")}`,
    value: median(times),
    goal: 1,
    unit: "ms",
    runs: samples,
  };
}

/** Including its samples in that time. */
async function measureIdle(daemon: BenchDaemon): Promise<Result> {
  const before = await cpuUs(daemon.pid);
  await sleep(idleMs);
  const percent = (100 * (((await cpuUs(daemon.pid)) - before) / 1_000)) / idleMs;
  return {
    what: "daemon, idle, share of one processor",
    measured: amount(percent, "%"),
    yardstick: `over ${idleMs / 1_000} s`,
    value: percent,
    goal: 0.5,
    unit: "%",
    runs: 1,
  };
}
