/** What containers use, all measured in one window. */
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import type { DockerEngine } from "./engine.ts";
import { containerUsage, type ContainerUsage, type EngineStats } from "./stats-arithmetic.ts";

export interface SampleOptions {
  signal?: AbortSignal | undefined;
  /** Between the two looks at each container, in milliseconds. */
  windowMs?: number;
}

const defaultWindowMs = 500;
const maxQuestions = 16;

/**
 * By id; without those that do not run, or ended meanwhile.
 * @throws SvcError `unavailable`; the signal's reason
 */
export async function sampleContainers(
  engine: DockerEngine,
  ids: readonly string[],
  { signal, windowMs = defaultWindowMs }: SampleOptions = {},
): Promise<ReadonlyMap<string, ContainerUsage>> {
  if (ids.length === 0) return new Map();
  const startedAtMs = performance.now();
  const before = await sampleAll(engine, ids, signal);
  await wait(Math.max(0, startedAtMs + windowMs - performance.now()), undefined, {
    ...(signal && { signal }),
  }).catch(() => signal?.throwIfAborted());
  const after = await sampleAll(engine, [...before.keys()], signal);
  const usages = new Map<string, ContainerUsage>();
  for (const [id, sample] of after) {
    const earlier = before.get(id);
    const usage = earlier && containerUsage(earlier, sample);
    if (usage !== undefined) usages.set(id, usage);
  }
  return usages;
}

async function sampleAll(
  engine: DockerEngine,
  ids: readonly string[],
  signal: AbortSignal | undefined,
): Promise<Map<string, EngineStats>> {
  const samples = await mapBounded(
    ids,
    maxQuestions,
    async (id) => [id, await sample(engine, id, signal)] as const,
  );
  return new Map(samples.flatMap(([id, stats]) => (stats === undefined ? [] : [[id, stats]])));
}

/** One look, without the second one that the engine would take after a second of its own. */
async function sample(
  engine: DockerEngine,
  id: string,
  signal: AbortSignal | undefined,
): Promise<EngineStats | undefined> {
  try {
    const stats = await engine.call(
      "measure a container",
      (docker) => docker.getContainer(id).stats({ stream: false, "one-shot": true }),
      { signal },
    );
    return stats;
  } catch (error) {
    const isGone =
      error instanceof SvcError && (error.code === "not_found" || error.code === "failed_precondition");
    if (isGone) return undefined;
    throw error;
  }
}
