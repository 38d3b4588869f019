/** What containers use, measured for all who ask at once in one window. */
import { SharedRounds } from "../lib/shared-rounds.ts";
import { sampleContainers } from "./container-stats.ts";
import type { EngineState } from "./engine-state.ts";
import type { DockerEngine } from "./engine.ts";
import type { ContainerUsage } from "./stats-arithmetic.ts";

export interface ContainerSamplerOptions {
  engine: DockerEngine;
  /** Knows the first process of those that run. */
  state: Pick<EngineState, "containerNow">;
}

export class ContainerSampler {
  readonly #rounds: SharedRounds<readonly string[], ReadonlyMap<string, ContainerUsage>>;

  constructor({ engine, state }: ContainerSamplerOptions) {
    this.#rounds = new SharedRounds((asked, signal) =>
      sampleContainers(engine, [...new Set(asked.flat())], {
        signal,
        pidOf: (id) => state.containerNow(id)?.pid,
      }),
    );
  }

  /** By id, with those that others have asked for in the same window. @throws as {@link sampleContainers} */
  async sample(ids: readonly string[], signal?: AbortSignal): Promise<ReadonlyMap<string, ContainerUsage>> {
    return ids.length === 0 ? new Map() : this.#rounds.join(ids, signal);
  }
}
