import { setImmediate as othersTurn, setTimeout as sleep } from "node:timers/promises";
import type { ProcessEntry } from "../../sys/process-table.mjs";
import { CoalescedRequests } from "../../lib/coalesced-requests.ts";
import type { RuntimeUsage } from "../capabilities.ts";
import { ProcReader, type StorageUse } from "../../sys/proc-reader.ts";
import { membersOf, type SampledRun } from "../../sys/run-membership.ts";

export interface SamplerOptions {
  reader?: ProcReader;
  /** Length of the sampling window. */
  windowMs?: number;
  /** A monotonic clock. */
  nowMs?: () => number;
}

/** By app ID. */
type Usages = ReadonlyMap<string, RuntimeUsage>;

/** Readings of each process in one interval, by PID. */
interface Measurements {
  elapsedSecs: number;
  after: ReadonlyMap<number, ProcessEntry>;
  memory: ReadonlyMap<number, number>;
  storage: ReadonlyMap<number, StorageUse>;
}

/** `USER_HZ`, 100 on every architecture that Node supports. */
const ticksPerSecond = 100;

/** Measures the processes of all apps over one interval; a daemon has one sampler. */
export class ProcessSampler {
  readonly #reader: ProcReader;
  readonly #windowMs: number;
  readonly #nowMs: () => number;
  /** Returns the usages by the {@link keyOf} of the requested runs. */
  readonly #samples = new CoalescedRequests((requests: readonly (readonly SampledRun[])[], signal) =>
    this.#measure(requests, signal),
  );

  constructor({
    reader = new ProcReader(),
    windowMs = 500,
    nowMs = () => performance.now(),
  }: SamplerOptions = {}) {
    this.#reader = reader;
    this.#windowMs = windowMs;
    this.#nowMs = nowMs;
  }

  /**
   * Measures over one interval, whatever the number of runs and callers: callers that arrive during a measurement
   * share the next one, after at most two intervals.
   * @returns usage by app ID; without apps that have no visible process
   * @throws the signal's reason
   */
  async sample(runs: readonly SampledRun[], signal?: AbortSignal): Promise<Usages> {
    if (runs.length === 0) return new Map();
    const usages = await this.#samples.request(runs, signal);
    return usages.get(keyOf(runs)) ?? new Map<string, RuntimeUsage>();
  }

  async #measure(
    requests: readonly (readonly SampledRun[])[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, Usages>> {
    const owners = new Set(requests.flat().map(({ ownerUid }) => ownerUid));
    const table = await this.#reader.readTable(signal);
    const beforeMs = this.#nowMs();
    const origins = await this.#reader.readOrigins(table, owners, signal);

    // Each by its own runs: the owner of a process must not depend on concurrent calls.
    const membersByKey = new Map<string, Map<string, ProcessEntry[]>>();
    for (const [key, runs] of new Map(requests.map((runs) => [keyOf(runs), runs]))) {
      signal.throwIfAborted();
      membersByKey.set(key, membersOf(runs, table, origins));
      await othersTurn();
    }
    const all = [...new Set([...membersByKey.values()].flatMap((members) => [...members.values()].flat()))];

    const [memory, storage] = await Promise.all([
      this.#reader.readMemory(all, signal),
      this.#reader.readStorage(all, signal),
      // The sleep rejects only when the signal aborts, and then the reads must end too.
      sleep(this.#windowMs, undefined, { signal }).catch(() => undefined),
    ]);
    signal.throwIfAborted();
    const elapsedSecs = (this.#nowMs() - beforeMs) / 1000;
    const after = await this.#reader.readAgain(all, signal);

    const measured = { elapsedSecs, after, memory, storage };
    return new Map(Array.from(membersByKey, ([key, members]) => [key, usagesOf(members, measured)]));
  }
}

function keyOf(runs: readonly SampledRun[]): string {
  return JSON.stringify(runs.map(({ appId, ownerUid, runId, pid }) => [appId, ownerUid, runId, pid]));
}

function usagesOf(members: ReadonlyMap<string, readonly ProcessEntry[]>, measured: Measurements): Usages {
  const { elapsedSecs, after, memory, storage } = measured;
  const usages = new Map<string, RuntimeUsage>();
  for (const [appId, entries] of members) {
    let ticks = 0;
    let memoryBytes = 0;
    for (const { pid, cpuTicks } of entries) {
      ticks += Math.max(0, (after.get(pid)?.cpuTicks ?? 0) - cpuTicks);
      memoryBytes += memory.get(pid) ?? 0;
    }
    const cpuPercent = ((ticks / ticksPerSecond) * 100) / elapsedSecs;
    usages.set(appId, {
      cpuPercent: Math.round(cpuPercent * 10) / 10,
      memoryBytes,
      processes: entries.length,
      ...totalStorage(entries.flatMap(({ pid }) => storage.get(pid) ?? [])),
    });
  }
  return usages;
}

/** Absent if none of the processes could be inspected. */
function totalStorage(uses: readonly StorageUse[]): StorageUse | undefined {
  if (uses.length === 0) return undefined;
  return {
    diskReadBytes: uses.reduce((sum, use) => sum + use.diskReadBytes, 0),
    diskWrittenBytes: uses.reduce((sum, use) => sum + use.diskWrittenBytes, 0),
  };
}
