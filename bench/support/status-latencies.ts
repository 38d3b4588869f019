import { setTimeout as sleep } from "node:timers/promises";
import type { BenchDaemon } from "./daemon.ts";
import { timeMs } from "./statistics.ts";

const intervalMs = 5;

/** Milliseconds of sequential status requests, as long as `goesOn` returns true. */
export async function statusLatencies(
  daemon: BenchDaemon,
  goesOn: (taken: number) => boolean,
): Promise<number[]> {
  const latencies: number[] = [];
  while (goesOn(latencies.length)) {
    latencies.push(await timeMs(() => daemon.get("/v1/status")));
    await sleep(intervalMs);
  }
  return latencies;
}
