/** What containers use, all measured in one window. */
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
  /** Between the two looks at each container, in milliseconds. */
  windowMs?: number;
  /** The first process of a running container, where it is known already; default: the engine is asked. */
  pidOf?: (id: string) => number | undefined;
  /** Reads what this host's kernel has counted. */
  cgroups?: CgroupReader;
}

const defaultWindowMs = 500;
const minWindowShare = 0.8;
/** The engine may wait a second before it answers, doing nothing. */
const maxQuestions = 32;
const answerMs = 10_000;

/** Looks at one container once; `undefined`: it does not run. */
type Look = () => Promise<ContainerCounters | undefined>;

/**
 * By id; without those that do not run, or ended meanwhile. What this host's kernel has not counted is asked of the
 * engine, which takes some seconds more.
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
  const looks = await mapBounded(ids, maxQuestions, async (id) => {
    const pid = pidOf?.(id) ?? (await askPid(engine, id, signal));
    if (pid === undefined) return { id, look: () => Promise.resolve(undefined), before: undefined };
    const fromKernel: Look = () => cgroups.read(id, pid);
    const counted = await fromKernel();
    if (counted !== undefined) return { id, look: fromKernel, before: counted };
    const fromEngine: Look = () => askCounters(engine, id, signal);
    return { id, look: fromEngine, before: await fromEngine() };
  });
  // However long the first looks took, the last of them must be some time ago.
  await pause(Math.max(startedAtMs + windowMs - performance.now(), windowMs * minWindowShare), signal);
  const after = await mapBounded(looks, maxQuestions, ({ look }) => look());
  for (const [at, { id, before }] of looks.entries()) {
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

async function askPid(
  engine: DockerEngine,
  id: string,
  signal: AbortSignal | undefined,
): Promise<number | undefined> {
  const pid = await unlessStopped(
    engine.call(
      "inspect a container",
      async (docker) => (await docker.getContainer(id).inspect()).State.Pid,
      { signal },
    ),
  );
  return pid === 0 ? undefined : pid;
}

/** One look, without the second one that the engine would take after a second of its own. */
async function askCounters(
  engine: DockerEngine,
  id: string,
  signal: AbortSignal | undefined,
): Promise<ContainerCounters | undefined> {
  const stats = await unlessStopped(
    engine.operate(
      "measure a container",
      (docker) => docker.getContainer(id).stats({ stream: false, "one-shot": true }),
      { timeoutMs: answerMs, signal },
    ),
  );
  return stats && engineCounters(stats);
}

function unlessStopped<T>(answer: Promise<T>): Promise<T | undefined> {
  return unlessGone(answer, ["not_found", "failed_precondition"]);
}
