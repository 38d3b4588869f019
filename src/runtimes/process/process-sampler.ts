import { setImmediate as othersTurn, setTimeout as sleep } from "node:timers/promises";
import type { ProcessEntry } from "../../lib/process-table.mjs";
import { SharedRounds } from "../../lib/shared-rounds.ts";
import type { RuntimeUsage } from "../runtime.ts";
import { ProcReader, type StorageUse } from "./proc-reader.ts";
import { membersOf, type SampledRun } from "./run-membership.ts";

export interface SamplerOptions {
  reader?: ProcReader;
  /** Length of the sampling window. */
  windowMs?: number;
  /** Monotonic. */
  nowMs?: () => number;
}

/** By app id. */
type Usages = ReadonlyMap<string, RuntimeUsage>;

/** What was read about each process in one window, by pid. */
interface Measurements {
  elapsedSecs: number;
  after: ReadonlyMap<number, ProcessEntry>;
  memory: ReadonlyMap<number, number>;
  storage: ReadonlyMap<number, StorageUse>;
}

/** `USER_HZ`, 100 on every architecture that Node supports. */
const ticksPerSecond = 100;

/** Measures the processes of apps, all in one window: one sampler for each daemon. */
export class ProcessSampler {
  readonly #reader: ProcReader;
  readonly #windowMs: number;
  readonly #nowMs: () => number;
  /** Each gives the usages by the {@link keyOf} of the runs that were asked for. */
  readonly #rounds = new SharedRounds((asked: readonly (readonly SampledRun[])[], signal) =>
    this.#measure(asked, signal),
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
   * Measures over one window, however many runs there are and however many ask: who comes while one is under way
   * shares the next one, after at most two windows.
   * @returns by app id; an app without a process that can be seen is absent
   * @throws the signal's reason
   */
  async sample(runs: readonly SampledRun[], signal?: AbortSignal): Promise<Usages> {
    if (runs.length === 0) return new Map();
    const usages = await this.#rounds.join(runs, signal);
    return usages.get(keyOf(runs)) ?? new Map<string, RuntimeUsage>();
  }

  async #measure(
    asked: readonly (readonly SampledRun[])[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, Usages>> {
    const owners = new Set(asked.flat().map(({ ownerUid }) => ownerUid));
    const table = await this.#reader.readTable(signal);
    const beforeMs = this.#nowMs();
    const origins = await this.#reader.readOrigins(table, owners, signal);

    // Each by its own runs alone: whose a process is must not depend on what others ask at the same time.
    const membersByKey = new Map<string, Map<string, ProcessEntry[]>>();
    for (const [key, runs] of new Map(asked.map((runs) => [keyOf(runs), runs]))) {
      signal.throwIfAborted();
      membersByKey.set(key, membersOf(runs, table, origins));
      await othersTurn();
    }
    const all = [...new Set([...membersByKey.values()].flatMap((members) => [...members.values()].flat()))];

    const [memory, storage] = await Promise.all([
      this.#reader.readMemory(all, signal),
      this.#reader.readStorage(all, signal),
      // It rejects only when the signal aborts, and the reads have to end too then.
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

/** Absent when none of the processes could be looked into. */
function totalStorage(uses: readonly StorageUse[]): StorageUse | undefined {
  if (uses.length === 0) return undefined;
  return {
    diskReadBytes: uses.reduce((sum, use) => sum + use.diskReadBytes, 0),
    diskWrittenBytes: uses.reduce((sum, use) => sum + use.diskWrittenBytes, 0),
  };
}
