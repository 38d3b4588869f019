/** Measures the resource usage of several containers over one interval. */
import { setTimeout as wait } from "node:timers/promises";
import { mapBounded } from "../lib/map-bounded.ts";
import { CgroupReader } from "./cgroup-counters.ts";
import { unlessGone } from "./engine-errors.ts";
import type { DockerEngine } from "./engine.ts";
import {
  engineCounters,
  usageBetween,
  type ContainerCounters,
  type ContainerUsage,
} from "./stats-arithmetic.ts";

export interface SampleOptions {
  signal?: AbortSignal | undefined;
  /** Interval between the two measurements of each container, in milliseconds. */
  windowMs?: number;
  /** The main process of a running container, if known; by default the engine is queried. */
  pidOf?: (id: string) => number | undefined;
  /** Reads the kernel's counters of this host. */
  cgroups?: CgroupReader;
}

const defaultWindowMs = 500;
const minWindowShare = 0.8;
/** The engine may wait a second, idle, before it answers. */
const maxQuestions = 32;
const answerMs = 10_000;

/** Reads the counters of one container once; `undefined`: it is not running. */
type ReadCounters = () => Promise<ContainerCounters | undefined>;

/**
 * Usage by ID, without containers that are not running or ended during the measurement. Counters that this host's
 * kernel does not have are read from the engine, which takes some seconds more.
 * @throws SvcError `unavailable`; the signal's reason
 */
export async function sampleContainers(
  engine: DockerEngine,
  ids: readonly string[],
  { signal, windowMs = defaultWindowMs, pidOf, cgroups = new CgroupReader() }: SampleOptions = {},
): Promise<ReadonlyMap<string, ContainerUsage>> {
  const usages = new Map<string, ContainerUsage>();
  if (ids.length === 0) return usages;
  const startedAtMs = performance.now();
  const samples = await mapBounded(ids, maxQuestions, async (id) => {
    const pid = pidOf?.(id) ?? (await queryPid(engine, id, signal));
    if (pid === undefined) return { id, readAgain: () => Promise.resolve(undefined), before: undefined };
    const fromKernel: ReadCounters = () => cgroups.read(id, pid);
    const counted = await fromKernel();
    if (counted !== undefined) return { id, readAgain: fromKernel, before: counted };
    const fromEngine: ReadCounters = () => queryCounters(engine, id, signal);
    return { id, readAgain: fromEngine, before: await fromEngine() };
  });
  // Even if the first readings took long, keep a minimum interval after the last of them.
  await pause(Math.max(startedAtMs + windowMs - performance.now(), windowMs * minWindowShare), signal);
  const after = await mapBounded(samples, maxQuestions, ({ readAgain }) => readAgain());
  for (const [at, { id, before }] of samples.entries()) {
    const later = after[at];
    if (before !== undefined && later !== undefined) usages.set(id, usageBetween(before, later));
  }
  return usages;
}

async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await wait(Math.max(0, ms), undefined, { ...(signal && { signal }) });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}

async function queryPid(
  engine: DockerEngine,
  id: string,
  signal: AbortSignal | undefined,
): Promise<number | undefined> {
  const pid = await unlessStopped(
    engine.operate(
      "inspect a container",
      async (docker) => (await docker.getContainer(id).inspect()).State.Pid,
      { timeoutMs: answerMs, signal, waitsFor: "measurement" },
    ),
  );
  return pid === 0 ? undefined : pid;
}

/** Requests a single sample. By default the engine samples twice, one second apart, before it responds. */
async function queryCounters(
  engine: DockerEngine,
  id: string,
  signal: AbortSignal | undefined,
): Promise<ContainerCounters | undefined> {
  const stats = await unlessStopped(
    engine.operate(
      "measure a container",
      (docker) => docker.getContainer(id).stats({ stream: false, "one-shot": true }),
      { timeoutMs: answerMs, signal, waitsFor: "measurement" },
    ),
  );
  return stats && engineCounters(stats);
}

function unlessStopped<T>(answer: Promise<T>): Promise<T | undefined> {
  return unlessGone(answer, ["not_found", "failed_precondition"]);
}
