/** Measures the resource usage of containers; concurrent callers share one measurement. */
import { onShareOf, rootShare } from "../lib/share-owner.ts";
import { CoalescedRequests } from "../lib/coalesced-requests.ts";
import { sampleContainers } from "./container-stats.ts";
import type { EngineState } from "./engine-state.ts";
import type { DockerEngine } from "./engine.ts";
import type { ContainerUsage } from "./stats-arithmetic.ts";

export interface ContainerSamplerOptions {
  engine: DockerEngine;
  /** Provides the main process of running containers. */
  state: Pick<EngineState, "containerNow">;
}

export class ContainerSampler {
  readonly #samples: CoalescedRequests<readonly string[], ReadonlyMap<string, ContainerUsage>>;

  constructor({ engine, state }: ContainerSamplerOptions) {
    this.#samples = new CoalescedRequests((requests, signal) =>
      // Other users wait for the result too, so it must not use the slots of the first caller.
      onShareOf(rootShare, () =>
        sampleContainers(engine, [...new Set(requests.flat())], {
          signal,
          pidOf: (id) => state.containerNow(id)?.pid,
        }),
      ),
    );
  }

  /** By ID; may include containers that other callers asked for. @throws as {@link sampleContainers} */
  async sample(ids: readonly string[], signal?: AbortSignal): Promise<ReadonlyMap<string, ContainerUsage>> {
    return ids.length === 0 ? new Map() : this.#samples.request(ids, signal);
  }
}
